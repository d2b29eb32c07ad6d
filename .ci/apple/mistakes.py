"""The mistakes that .ci/check-apple has to find.

Each has its system, its file, what is changed into what, and what the compiler has to say.
"""

BACKGROUND = "Sources/SteadfastQueue/Background/Apple/BackgroundScheduler+BackgroundTasks.swift"
PATH_MONITOR = "Sources/SteadfastQueue/Conditions/Network/PathMonitor.swift"
TRANSFERS = "Sources/SteadfastQueue/Queue/Memory/TaskToken.swift"
SYSTEM_CALL = "Sources/SteadfastQueue/Platform/SystemCall.swift"
THREAD = "Sources/SteadfastQueue/Platform/SystemThread.swift"
FORK = "Sources/SteadfastQueue/Platform/SystemCall.swift"
STOP = "Sources/SteadfastQueue/Platform/StopSignal.swift"
TIMEOUT = "Sources/SteadfastRetry/Time/withTimeout.swift"

MISTAKES = [
    # A wrong label, a wrong name, a wrong number of arguments.
    ("iOS", BACKGROUND, "setTaskCompleted(success: succeeded)",
     "setTaskCompleted(succeeded: succeeded)", "incorrect argument label"),
    ("tvOS", BACKGROUND, "task.expirationHandler", "task.expiryHandler", "has no member"),
    ("macOS", SYSTEM_CALL, "fcntl(file, F_FULLFSYNC)", "fcntl(file, F_FULLSYNC)", "cannot find"),
    # A closure that is called elsewhere, and may not be.
    ("iOS", BACKGROUND, "@escaping @Sendable () async throws -> Bool",
     "@escaping () async throws -> Bool", "risks causing data races"),
    ("macOS", PATH_MONITOR, "private final class LastValue: Sendable",
     "private final class LastValue", "non-Sendable type 'PathMonitor.LastValue'"),
    # What the oldest system that is supported does not have, or only iOS.
    ("iOS", BACKGROUND, "@available(iOS 26.0, *)\n", "", "only available in iOS 26"),
    ("tvOS", BACKGROUND, "#if os(iOS)", "#if os(iOS) || os(tvOS)", "unavailable in tvOS"),
    ("visionOS", BACKGROUND, "#if os(iOS)", "#if os(iOS) || os(visionOS)",
     "unavailable in visionOS"),
    ("watchOS", BACKGROUND, " && !os(watchOS)", "", "unavailable in watchOS"),
    ("macOS", BACKGROUND, " && !os(macOS)", "", "unavailable in macOS"),
    ("visionOS", TIMEOUT, "if #available(macOS 26, iOS 26, tvOS 26, watchOS 26, visionOS 26, *) {",
     "if true {", "only available in visionOS 26"),
    # A missing `try`, `await` or `unsafe`, and one that has no effect.
    ("iOS", BACKGROUND, "try await self.runAvailable()\n      return true",
     "await self.runAvailable()\n      return true", "not marked with 'try'"),
    ("macOS", TRANSFERS, "Set(await session.allTasks", "Set(session.allTasks", "'async'"),
    ("macOS", FORK, "return pthread_atfork", "return unsafe pthread_atfork", "no unsafe operations"),
    # A wrong optional.
    ("macOS", TRANSFERS, "taskDescription.flatMap { TaskToken($0) }", "TaskToken(taskDescription)",
     "must be unwrapped"),
    ("macOS", THREAD, "var thread: pthread_t?", "var thread: pthread_t", "must have Optional type"),
    # A branch that is Linux's.
    ("watchOS", STOP, "let type = SOCK_STREAM\n", "let type = SOCK_STREAM | SOCK_CLOEXEC\n",
     "cannot find 'SOCK_CLOEXEC'"),
    ("iOS", SYSTEM_CALL, "Int(fsync(file))", "Int(fdatasync(file))", "cannot find 'fdatasync'"),
]
