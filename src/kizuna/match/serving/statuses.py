"""What callers are told of an error: a code, and a sentence. Those of Open Match, wherever it has one.

What is wrong with a request is said in full. What is wrong with us, they need not know, and could not mend: which
server we keep things on, whom it lets in. That goes to the log, under a number that the caller is given.
"""

from __future__ import annotations

import logging
import secrets

from grpc import StatusCode

from kizuna import errors

log = logging.getLogger("kizuna.match.serving")


class BadCall(errors.KizunaError):
    """A request that is refused in words that others have chosen, and that callers may look for."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        return self.text


# Every class is named, also where it agrees with its parent: a new error is a new decision.
_OF_CODE: dict[StatusCode, tuple[type[errors.KizunaError], ...]] = {
    StatusCode.NOT_FOUND: (errors.TicketMissing, errors.BackfillMissing),
    # TooLarge, too: RESOURCE_EXHAUSTED sounds as if it could be different the next time.
    StatusCode.INVALID_ARGUMENT: (errors.WrongValue, errors.IllegalName, errors.TooLarge),
    # Nothing was done, and it is safe to try again: many clients do so by themselves when they see this code.
    StatusCode.UNAVAILABLE: (
        errors.BackfillExpired,
        errors.TicketsLocked,
        errors.NotSent,
        errors.Unreachable,
        errors.TlsRefused,
        errors.SignInRefused,
        errors.Overloaded,
        errors.NotPrimary,
    ),
    # Therefore not for this one: a ticket that was created, and is created again, is a player who plays twice.
    StatusCode.UNKNOWN: (errors.OutcomeUnknown, errors.FunctionFailed, errors.EvaluatorFailed),
    StatusCode.RESOURCE_EXHAUSTED: (errors.OutOfMemory, errors.StorageFull),
    StatusCode.INTERNAL: (
        errors.KizunaError,
        errors.StoreError,
        errors.Refused,
        errors.PermissionDenied,
        errors.ScriptFailed,
        errors.SettingsError,
        errors.ScriptMismatch,
        errors.UnsafeServer,
        errors.NotificationsOff,
        errors.Undecodable,
        errors.TickFailed,
        errors.NoGameServer,
        # What matchmaking never raises.
        errors.NotInstalled,
        errors.ServiceFailed,
        errors.ServiceStuck,
        errors.CannotListen,
        errors.ServerNotStarted,
        errors.ServerInUse,
        errors.LockHeld,
        errors.LockLost,
        errors.ProcessUnknown,
        errors.ProcessTaken,
        errors.IssueTaken,
        errors.IssueLost,
        errors.LeaseLost,
        errors.TaskUnknown,
        errors.TaskFailed,
        errors.TaskCancelled,
        errors.ValueUnknown,
        errors.ValueChanged,
        errors.NotFollowed,
        errors.MessagesGone,
        errors.BackupDamaged,
        errors.BackupNotWritten,
        errors.BackupFull,
        errors.RestoreConflict,
        errors.RequestFailed,
        errors.RequestTimeout,
        errors.ItemMissing,
        errors.ItemExists,
        errors.ContextMissing,
        errors.ContextExists,
        errors.VersionConflict,
        errors.OutcomeForgotten,
        errors.EventsGone,
        errors.CannotSeal,
        errors.ContentSealed,
        errors.CannotOpen,
    ),
}
CODE_OF: dict[type[errors.KizunaError], StatusCode] = {
    error: code for code, classes in _OF_CODE.items() for error in classes
}

# Of errors whose own sentence says more about our servers than callers should know.
_TOLD_INSTEAD = {
    StatusCode.UNAVAILABLE: "tickets cannot be reached now, and nothing was done; try again",
    StatusCode.UNKNOWN: "no answer came in time, and it may have been done; look before you try again",
    StatusCode.RESOURCE_EXHAUSTED: "there is no room for it now; try again later",
    StatusCode.INTERNAL: "something went wrong here; the log of the server has the rest",
}


def status_of(error: errors.KizunaError) -> tuple[StatusCode, str]:
    """The code of its class, or of the nearest class above it, and what to say."""
    if isinstance(error, BadCall):
        return error.code, error.text
    code = next(CODE_OF[cls] for cls in type(error).__mro__ if cls in CODE_OF)
    is_ours = code is StatusCode.INTERNAL or isinstance(error, (errors.StoreError, errors.TicketsLocked))
    return code, _TOLD_INSTEAD[code] if is_ours else str(error)


def answer_to(error: Exception, call: str) -> tuple[StatusCode, str]:
    """What to tell whoever made the call that ended with this error. Whatever is our own fault, or nobody had thought
    of, is logged, under a number that the answer names."""
    code, text = (
        status_of(error)
        if isinstance(error, errors.KizunaError)
        else (StatusCode.INTERNAL, _TOLD_INSTEAD[StatusCode.INTERNAL])
    )
    if code is not StatusCode.INTERNAL:
        log.debug("call failed", extra={"call": call, "code": code.name, "error": str(error)})
        return code, text
    number = secrets.token_hex(4)
    log.error("call failed", extra={"call": call, "incident": number, "error": repr(error)}, exc_info=error)
    return code, f"{text}, under {number}"
