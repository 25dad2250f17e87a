"""The harness of our own: `native.agent`."""

from runtime_host.drivers.native.driver import NativeDriver
from runtime_host.drivers.native.profile import DRIVER_ID

__all__ = ["DRIVER_ID", "NativeDriver"]
