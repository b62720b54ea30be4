"""The SDK's version and how it names itself to servers."""

VERSION = "1.0.0"
USER_AGENT = f"orbit-sdk/{VERSION} (python)"
