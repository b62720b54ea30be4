"""In-process signals that there is something to do now. They only save waiting: each loop looks by itself as well."""

from __future__ import annotations

import threading

DELIVER = threading.Event()  # a row waits for delivery
NOTIFY = threading.Event()  # a notification waits for sending
