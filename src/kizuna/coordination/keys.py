"""The key families of coordination, below the root `poppo` unless set otherwise."""

from __future__ import annotations

from kizuna.store.keys import Key

# issues

ISSUE_STATUS = Key("issue:status:<issue>", "string", "removed", "the status of the issue, in one word")
ISSUE_METADATA = Key("issue:metadata:<issue>", "hash", "removed", "what is known about the issue")
ISSUES_PROCESSING = Key("issues:processing", "set", "removed", "the issues whose status is processing")
ISSUES_COMPLETED_TODAY = Key("issues:completed:today", "set", "expires", "the issues completed today; ends at midnight")

# processes

PROCESS_INFO = Key("process:info:<process>", "hash", "expires", "what the process says about itself")
PROCESS_HEARTBEAT = Key("process:heartbeat:<process>", "string", "expires", "present while the process is heard of")
PROCESS_BURIAL = Key("process:burial:<process>", "string", "expires", "who gives back what the dead process held")
PROCESSES_ACTIVE = Key("processes:active", "set", "removed", "the processes that are at work")
PROCESSES_ZOMBIES = Key("processes:zombies", "set", "removed", "the processes that died without saying goodbye")
PROCESSES_DEADLINES = Key(
    "processes:deadlines", "zset", "removed", "until when, in ms, each process has to be heard of"
)
PROCESSES_LOOKED = Key("processes:looked", "hash", "expires", "when somebody last looked for silent processes")

# queues: those of the default group have the short names

QUEUE = Key("queue:<priority>", "list", "removed", "ids of waiting tasks; pushed on the left, handed out on the right")
QUEUE_OF_GROUP = Key("queue:<group>:<priority>", "list", "removed", "the same for a group with a name")
TASK_INFO = Key("task:info:<task>", "hash", "removed", "the task: its payload, its state and its history")
TASK_RESULT = Key("task:result:<task>", "string", "expires", "what the task returned")
QUEUES_GROUPS = Key("queues:groups", "set", "removed", "the groups that have, or had, tasks")
QUEUES_DELAYED = Key("queues:delayed:<group>", "zset", "removed", "tasks that wait for their time, in ms")
QUEUES_DEAD = Key("queues:dead:<group>", "zset", "removed", "tasks that were given up, and when")
QUEUES_CONSUMERS = Key("queues:consumers:<group>", "zset", "removed", "until when, in ms, each consumer has its lease")
QUEUES_RUNNING = Key("queues:running:<group>", "hash", "removed", "the tasks that run now, and at which consumer")
QUEUES_HELD = Key("queues:held:<group>:<consumer>", "hash", "removed", "the tasks a consumer runs now")
QUEUES_IDLE = Key("queues:idle:<group>", "zset", "removed", "consumers that wait for a task, and since when")
QUEUES_PAUSED = Key("queues:paused:<group>", "string", "never", "present while nothing is handed out")
QUEUES_COUNTS = Key("queues:counts:<group>", "hash", "never", "tasks handed out so far, and cancelled ones in lists")
QUEUES_RATES = Key("queues:rates:<group>:<minute>", "hash", "expires", "how many tasks came and went in that minute")
QUEUES_WAKE = Key("queues:wake:<group>:<consumer>", "channel", "never", "tells a waiting consumer to look")
QUEUES_FINISHED = Key("queues:finished:<group>", "channel", "never", "names tasks that are done, dead or cancelled")

# locks

LOCK = Key("lock:<lock...>", "string", "expires", "held: the fencing number and the token of the holder")
LOCKS_HELD = Key("locks:held:<process>", "zset", "expires", "the locks the process holds, and until when, in ms")
LOCKS_FENCE = Key("locks:fence", "string", "never", "the last fencing number handed out")
LOCKS_LINE = Key("locks:line:<lock...>", "zset", "expires", "who waits for the lock, and since when, in µs")
LOCKS_TURN = Key("locks:turn:<lock...>", "string", "expires", "who may take the lock that was just released")
LOCKS_SEEN = Key("locks:seen:<resource...>", "string", "expires", "the highest fencing number shown to the resource")
LOCKS_FREED = Key("locks:freed:<process>", "channel", "never", "tells the process whose turn it is, or soon will be")

# config and flags

CONFIG = Key("config:<name...>", "string", "never", "a value that can change while programs run")
FLAG = Key("flags:<name...>", "string", "never", "a switch that can change while programs run")
CONFIG_HISTORY = Key("history:config:<name...>", "stream", "never", "the last changes of the value")
FLAG_HISTORY = Key("history:flags:<name...>", "stream", "never", "the last changes of the switch")

# stats and metrics

STATS_OF_DATE = Key("stats:<category>:<period>:<date>", "hash", "expires", "counters and histograms of a day")
STATS = Key("stats:<category>:<period>", "hash", "expires", "counters and histograms of the last periods")
STATS_FLUSHES = Key("stats-flushes:<category>", "zset", "expires", "batches of counts that were added lately, and when")
METRIC_CURRENT = Key("metrics:<metric>:current", "string", "expires", "the newest value")
METRIC_HISTORY = Key("metrics:<metric>:history", "stream", "expires", "the last values")

# channels

CHANNEL = Key("channel:<channel...>", "channel", "never", "messages for whoever listens now")
CHANNEL_LOG = Key("log:<channel...>", "stream", "never", "messages of a durable channel; the oldest go first")
CHANNEL_LOG_IDS = Key("log-ids:<channel...>", "zset", "expires", "ids of messages published lately, and when")
CHANNEL_CURSOR = Key("cursor:<reader>:<channel...>", "string", "expires", "the last message that the reader has done")

# what programs keep for a while

TEMP = Key("temp:<name...>", "string", "expires", "something for an hour")
SESSION = Key("session:<name...>", "string", "expires", "something for a month")
