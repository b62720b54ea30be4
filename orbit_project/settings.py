"""Django's settings: wiring only. What an operator may choose is read and checked by `configuration.py`."""

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from orbit_project.configuration import ConfigurationError, load
from orbit_project.databases import database_settings
from orbit_project.logs import logging_settings
from orbit_project.operators_site import UNFOLD as UNFOLD
from tasks_app import limits

BASE_DIR = Path(__file__).resolve().parent.parent

try:
    ORBIT = load(os.environ)
except ConfigurationError as error:
    sys.stderr.write(f"orbit: the settings are wrong, nothing was started\n{error}\n")
    raise SystemExit(2) from None

DEBUG = ORBIT.debug
SECRET_KEY = ORBIT.secret_key
ALLOWED_HOSTS = list(ORBIT.allowed_hosts)

INSTALLED_APPS = [
    "orbit_project",
    "tasks_app",
    "workers_app",
    "lifecycle_app",
    "unfold",  # before the admin, whose templates it replaces
    "unfold.contrib.filters",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "axes",
    "channels",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
]

MIDDLEWARE = [
    "tasks_app.api.middleware.RequestContextMiddleware",
    "orbit_project.page_headers.PageHeadersMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "orbit_project.page_middleware.PageSessionMiddleware",
    "orbit_project.page_middleware.PageLocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "orbit_project.page_middleware.PageAuthenticationMiddleware",
    "orbit_project.page_middleware.PageMessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "axes.middleware.AxesMiddleware",  # last: it answers for a login that was refused
]

ROOT_URLCONF = "orbit_project.urls"
WSGI_APPLICATION = "orbit_project.wsgi.application"
ASGI_APPLICATION = "orbit_project.asgi.application"
APPEND_SLASH = False  # a path of the API with a slash too many is an unknown path, not a redirect

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# -- Database
DATABASES = {"default": database_settings(ORBIT.database_url, base=BASE_DIR)}
SILENCED_SYSTEM_CHECKS = [
    "fields.W163",  # SQLite keeps no comments on columns and tables; the server databases do
    "models.W046",
    "security.W004",  # TLS ends at the proxy, which redirects and says so to browsers
    "security.W008",
]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
if ORBIT.database_url.engine == "sqlite":
    Path(DATABASES["default"]["NAME"]).parent.mkdir(parents=True, exist_ok=True)

# -- Live pages and hints; never truth
CHANNEL_LAYERS: dict[str, dict[str, Any]]
if ORBIT.channel_layer_url is None:
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
else:
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [ORBIT.channel_layer_url]},
        }
    }

# -- HTTP
REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    # The edges in tasks_app/api name their own; nothing is inherited by accident.
    "DEFAULT_AUTHENTICATION_CLASSES": [],
    "DEFAULT_PERMISSION_CLASSES": [],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": [],
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Orbit",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "POSTPROCESSING_HOOKS": ["tasks_app.api.openapi.complete"],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}
# The larger body limit; the smaller one of most paths is kept where the body streams in.
DATA_UPLOAD_MAX_MEMORY_SIZE = limits.BATCH_BODY_BYTES_MAX

# -- Safety of the pages
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = LANGUAGE_COOKIE_SECURE = not DEBUG
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
LOGIN_URL = "admin:login"
# Guessing is slowed down per user and address: after five wrong passwords that pair waits, and nobody else does.
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
AXES_FAILURE_LIMIT = 5
AXES_COOLOFF_TIME = timedelta(minutes=10)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_HTTP_RESPONSE_CODE = 429
AXES_ENABLE_ADMIN = False  # its pages could be edited; the site's own are read-only
AXES_VERBOSE = False

# -- Words and times
USE_TZ = True
TIME_ZONE = "UTC"
USE_I18N = True
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]

# -- Static files: in debug straight from the packages, else from `manage.py collectstatic` with hashed names
STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "var" / "static"
if DEBUG:
    STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # empty: in debug the finders serve; its absence is a warning
WHITENOISE_USE_FINDERS = DEBUG
WHITENOISE_AUTOREFRESH = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": (
            "django.contrib.staticfiles.storage.StaticFilesStorage"
            if DEBUG
            else "whitenoise.storage.CompressedManifestStaticFilesStorage"
        )
    },
}

LOGGING = logging_settings(log_format=ORBIT.log_format, log_level=ORBIT.log_level)
