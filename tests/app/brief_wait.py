"""The proxy's middlewares with a wait that a test can sit out (`RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH`)."""

from app.deployments import proxy

WAIT_SECONDS = 3.0


def middlewares():
    return proxy.middlewares(WAIT_SECONDS)
