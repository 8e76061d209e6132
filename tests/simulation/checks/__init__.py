"""What always holds. Each module checks one promise, and shares no code with the proxy."""
