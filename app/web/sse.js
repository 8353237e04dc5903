// Server-sent events out of a fetch response. Chunks may end anywhere, inside a character as well as inside a line.

/** Yield the `data` of every event in a byte stream; comments and other fields are skipped. */
export async function* readEvents(stream) {
  const decoder = new TextDecoder("utf-8");
  const reader = stream.getReader();
  const lines = new LineBuffer();
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      for (const line of lines.push(done ? decoder.decode() : decoder.decode(value, { stream: true }), done)) {
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line === "data" || line.startsWith("data:")) {
          data.push(line.slice(5).replace(/^ /, ""));
        }
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Cuts text into lines that end in LF, CRLF or CR, also where CR and LF come in different chunks. */
class LineBuffer {
  #rest = "";

  push(text, last) {
    this.#rest += text;
    const held = !last && this.#rest.endsWith("\r") ? "\r" : "";
    const parts = this.#rest.slice(0, this.#rest.length - held.length).split(/\r\n|\n|\r/);
    this.#rest = parts.pop() + held;
    return parts;
  }
}
