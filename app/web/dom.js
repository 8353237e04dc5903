// Elements without markup: text always goes in as text.

/** Make an element; `props` are properties, `data-`, `aria-` and `role` become attributes, children are nodes or text. */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (/^(aria-|data-|role$|for$|lang$)/.test(name)) node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
