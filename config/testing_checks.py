"""Checks the key ``testing``, which lets anybody who reaches the admin port throttle clients."""

from ipaddress import ip_address

from kafka_quota_proxy.config.unvalidated import UncheckedFile, address_of


def check_testing(file: UncheckedFile) -> None:
    """Report ``testing: true`` without an admin port, and warn if other machines may reach that port."""
    if file.top.get("testing") is not True:
        return
    admin = file.mapping_at("admin")
    if admin is None:
        file.error(("testing",), "needs the admin port; add the section admin with bind: 127.0.0.1:9644")
        return
    bind = address_of(admin.get("bind"))
    if bind is not None and not _is_loopback(bind.host):
        message = f"{bind} can be reached from other machines, and with testing: true anybody there can throttle"
        file.warn(("admin", "bind"), f"{message} your clients and replace their quotas; bind to 127.0.0.1")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
