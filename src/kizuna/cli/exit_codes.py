"""What the `kizuna` command says to the program that called it: one exit code for each kind of ending."""

from __future__ import annotations

from kizuna import errors

OK = 0
FAILURE = 1
USAGE = 2
NOT_FOUND = 3
CONFLICT = 4
BUSY = 5
UNAVAILABLE = 69
TRY_AGAIN = 75
NOT_PERMITTED = 77
BAD_SETTINGS = 78
INTERRUPTED = 130

# From 69 on they are those of sysexits.h; 130 is what shells report for a program that Ctrl-C ended.
MEANINGS = {
    OK: "done",
    FAILURE: "failed; the message says why",
    USAGE: "the command line is wrong",
    NOT_FOUND: "what was named does not exist",
    CONFLICT: "the state of things does not allow it: a conflict, or a condition that is not met",
    BUSY: "in use by others, or a limit is reached",
    UNAVAILABLE: "the server cannot be reached or started; nothing was sent",
    TRY_AGAIN: "no answer in time, or the wrong moment: look, then try again",
    NOT_PERMITTED: "wrong user or password, or the user may not do this",
    BAD_SETTINGS: "a setting is unknown, malformed, or contradicts another",
    INTERRUPTED: "ended by Ctrl-C",
}

# Every class is named, also where it agrees with its parent: a new error is a new decision.
OF_ERROR: dict[type[errors.KizunaError], int] = {
    errors.KizunaError: FAILURE,
    errors.SettingsError: BAD_SETTINGS,
    errors.NotInstalled: FAILURE,
    errors.IllegalName: USAGE,
    errors.ScriptMismatch: FAILURE,
    errors.ServiceFailed: FAILURE,
    errors.ServiceStuck: TRY_AGAIN,
    errors.CannotListen: BUSY,
    errors.ServerNotStarted: UNAVAILABLE,
    errors.ServerInUse: BUSY,
    errors.UnsafeServer: CONFLICT,
    errors.NotificationsOff: CONFLICT,
    errors.Undecodable: FAILURE,
    errors.LockHeld: BUSY,
    errors.LockLost: CONFLICT,
    errors.ProcessUnknown: NOT_FOUND,
    errors.ProcessTaken: CONFLICT,
    errors.IssueTaken: CONFLICT,
    errors.IssueLost: CONFLICT,
    errors.LeaseLost: CONFLICT,
    errors.TaskUnknown: NOT_FOUND,
    errors.TaskFailed: FAILURE,
    errors.TaskCancelled: CONFLICT,
    errors.WrongValue: USAGE,
    errors.ValueUnknown: NOT_FOUND,
    errors.ValueChanged: CONFLICT,
    errors.NotFollowed: FAILURE,
    errors.MessagesGone: CONFLICT,
    errors.BackupDamaged: FAILURE,
    errors.BackupNotWritten: FAILURE,
    errors.BackupFull: BUSY,
    errors.RestoreConflict: CONFLICT,
    errors.RequestFailed: FAILURE,
    errors.RequestTimeout: TRY_AGAIN,
    errors.TooLarge: USAGE,
    errors.ItemMissing: NOT_FOUND,
    errors.ItemExists: CONFLICT,
    errors.ContextMissing: NOT_FOUND,
    errors.ContextExists: CONFLICT,
    errors.VersionConflict: CONFLICT,
    errors.OutcomeForgotten: CONFLICT,
    errors.EventsGone: CONFLICT,
    errors.CannotSeal: FAILURE,
    errors.ContentSealed: FAILURE,
    errors.CannotOpen: FAILURE,
    errors.TicketMissing: NOT_FOUND,
    errors.BackfillMissing: NOT_FOUND,
    errors.BackfillExpired: CONFLICT,
    errors.TicketsLocked: BUSY,
    errors.TickFailed: FAILURE,
    errors.NoGameServer: FAILURE,
    errors.FunctionFailed: FAILURE,
    errors.EvaluatorFailed: FAILURE,
    errors.StoreError: FAILURE,
    errors.NotSent: UNAVAILABLE,
    errors.Unreachable: UNAVAILABLE,
    errors.TlsRefused: UNAVAILABLE,
    errors.SignInRefused: NOT_PERMITTED,
    errors.Overloaded: BUSY,
    errors.OutcomeUnknown: TRY_AGAIN,
    errors.Refused: FAILURE,
    errors.PermissionDenied: NOT_PERMITTED,
    errors.OutOfMemory: BUSY,
    errors.StorageFull: BUSY,
    errors.NotPrimary: TRY_AGAIN,
    errors.ScriptFailed: FAILURE,
}


def exit_code_of(error: errors.KizunaError) -> int:
    """That of its class, or of the nearest class above it."""
    return next(OF_ERROR[cls] for cls in type(error).__mro__ if cls in OF_ERROR)
