"""The audit log: who did what administratively, as lines that each hold the hash of the one before."""

from serve_app.audit.chain import AuditPage, Chain, Head, Report, verify
from serve_app.audit.values import AuditEvent, AuditLine

__all__ = ["AuditEvent", "AuditLine", "AuditPage", "Chain", "Head", "Report", "verify"]
