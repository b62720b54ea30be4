"""Who is calling: the peer's address, or what a trusted proxy says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address

Network = IPv4Network | IPv6Network


@dataclass(frozen=True)
class Caller:
    """The address that limits, logs and records are kept by, and the scheme that the client used."""

    address: str
    scheme: str


def caller(peer: str, headers: Mapping[str, str], *, scheme: str, trusted_proxies: Sequence[Network]) -> Caller:
    """The caller of a request that arrived from `peer` with `headers` (lower-case names).

    `X-Forwarded-For` is read from its right end, where the nearest proxy wrote, and only as long as each writer is
    trusted: what a client puts there itself stands further left and is never believed.
    """
    if not _is_trusted(peer, trusted_proxies):
        return Caller(peer, scheme)
    address = peer
    for hop in reversed([part.strip() for part in headers.get("x-forwarded-for", "").split(",") if part.strip()]):
        if not _is_address(hop):
            break
        address = hop
        if not _is_trusted(hop, trusted_proxies):
            break
    forwarded_scheme = headers.get("x-forwarded-proto", "").strip().lower()
    return Caller(address, forwarded_scheme if forwarded_scheme in ("http", "https") else scheme)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_trusted(address: str, trusted_proxies: Sequence[Network]) -> bool:
    if not trusted_proxies or not _is_address(address):
        return False
    parsed = ip_address(address)
    return any(parsed in network for network in trusted_proxies)
