"""Every exception that kizuna raises on purpose.

    KizunaError
    ├── SettingsError          a setting is unknown, malformed, or contradicts another
    ├── IllegalName            a name that could leave its place in a key
    ├── ScriptMismatch         a script was called with other names than its header declares
    ├── ServiceFailed          a service ended although nobody asked it to
    ├── ServiceStuck           a service did not stop in the time it was given
    ├── CannotListen           an address that we were to listen on is taken, or not ours
    ├── ServerNotStarted       the embedded server could not be started
    ├── ServerInUse            the embedded server is still used by others
    ├── UnsafeServer           the server is reachable, but we refuse to keep data on it as it is set up
    ├── NotificationsOff       the server announces no changes, and we may not switch that on
    └── StoreError             a command did not get its answer
        ├── NotSent            the server has not seen the command: repeating it is safe
        │   ├── Unreachable    nobody answers at the address, or the answer took too long
        │   ├── TlsRefused     the two sides do not trust each other
        │   ├── SignInRefused  wrong user or password; never retried
        │   └── Overloaded     more is in flight than we are willing to buffer
        ├── OutcomeUnknown     the command was sent and the answer never came: look before you repeat
        └── Refused            the server answered with an error
            ├── PermissionDenied   the ACL user may not do this
            ├── OutOfMemory        the server is full
            ├── StorageFull        the server cannot write to its disk
            ├── NotPrimary         this server does not take writes now
            └── ScriptFailed       a Lua script raised; says in which file and line

Each reads as a sentence: what happened, at which server, what to do. Facts are attributes. The arguments go
to `Exception`, so an error survives a trip between processes.
"""

from __future__ import annotations

from typing import ClassVar, Literal

Outcome = Literal["not sent", "unknown", "refused"]


class KizunaError(Exception):
    """The root of the tree: catch this to catch everything that kizuna raises on purpose."""


class SettingsError(KizunaError):
    """A setting is unknown, malformed, or contradicts another. Says of each problem where it was set."""

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        return "; ".join(self.problems)


class IllegalName(KizunaError):
    def __init__(self, place: str, name: str, reason: str) -> None:
        super().__init__(place, name, reason)
        self.place, self.name, self.reason = place, name, reason

    def __str__(self) -> str:
        return f"{self.name!r} cannot be the {self.place} of a key: {self.reason}"


class ScriptMismatch(KizunaError):
    def __init__(self, script: str, problem: str) -> None:
        super().__init__(script, problem)
        self.script, self.problem = script, problem

    def __str__(self) -> str:
        return f"script {self.script}: {self.problem}"


class ServiceFailed(KizunaError):
    """Raised where the services were started; the service's own exception is the cause."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(service, reason)
        self.service, self.reason = service, reason

    def __str__(self) -> str:
        return f"{self.service} ended by itself: {self.reason}"


class ServiceStuck(KizunaError):
    def __init__(self, service: str, waited_s: float) -> None:
        super().__init__(service, waited_s)
        self.service, self.waited_s = service, waited_s

    def __str__(self) -> str:
        return f"{self.service} was still running {self.waited_s:g}s after it was told to stop"


class CannotListen(KizunaError):
    def __init__(self, address: str, reason: str, settings: str) -> None:
        super().__init__(address, reason, settings)
        self.address, self.reason, self.settings = address, reason, settings

    def __str__(self) -> str:
        return (
            f"cannot listen on {self.address} ({self.reason}); set {self.settings} to what is free, as port 0 always is"
        )


class ServerNotStarted(KizunaError):
    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason, self.hint = reason, hint

    def __str__(self) -> str:
        return f"the embedded server did not start: {self.reason}; {self.hint}"


class ServerInUse(KizunaError):
    def __init__(self, folder: str, users: list[str]) -> None:
        super().__init__(folder, users)
        self.folder, self.users = folder, users

    def __str__(self) -> str:
        who = ", ".join(self.users) or "another process"
        return f"the server on {self.folder} is still used by {who}; end that first, or stop it with --force"


class UnsafeServer(KizunaError):
    def __init__(self, what: str, server: str, hint: str) -> None:
        super().__init__(what, server, hint)
        self.what, self.server, self.hint = what, server, hint

    def __str__(self) -> str:
        return f"{self.what} at {self.server}; {self.hint}"


class NotificationsOff(UnsafeServer):
    """Waiting for changes is impossible here; everything else works."""


class StoreError(KizunaError):
    """A command did not get its answer. `outcome` tells whether the server may have run it."""

    outcome: ClassVar[Outcome]

    def __init__(self, what: str, server: str, hint: str) -> None:
        super().__init__(what, server, hint)
        self.what, self.server, self.hint = what, server, hint

    def __str__(self) -> str:
        return f"{self.what} at {self.server} ({self.outcome}); {self.hint}"

    @property
    def code(self) -> str:
        """The first word of the server's error reply; empty if the server did not speak."""
        return ""


class NotSent(StoreError):
    outcome = "not sent"


class Unreachable(NotSent):
    pass


class TlsRefused(NotSent):
    pass


class SignInRefused(NotSent):
    pass


class Overloaded(NotSent):
    pass


class OutcomeUnknown(StoreError):
    outcome = "unknown"


class Refused(StoreError):
    """The server answered with an error: `what` is its text."""

    outcome = "refused"

    @property
    def code(self) -> str:
        return self.what.split(" ", 1)[0]


class PermissionDenied(Refused):
    pass


class OutOfMemory(Refused):
    pass


class StorageFull(Refused):
    pass


class NotPrimary(Refused):
    pass


class ScriptFailed(Refused):
    pass
