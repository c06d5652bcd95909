"""As little Django as there can be: one app, no templates, no sessions."""

import os
from urllib.parse import parse_qs, unquote, urlsplit

_url = urlsplit(os.environ["DATABASE_URL"])
_query = {name: values[-1] for name, values in parse_qs(_url.query).items()}

SECRET_KEY = os.environ.get("SECRET_KEY", "for development only")
ALLOWED_HOSTS = ["localhost", "testserver"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop"]
MIDDLEWARE: list[str] = []
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.lstrip("/"),
        "HOST": _query.get("host", _url.hostname or ""),
        "PORT": _query.get("port", _url.port or ""),
        "USER": unquote(_url.username or _query.get("user", "")),
        "PASSWORD": unquote(_url.password or ""),
    }
}
