package spec

// The resource limits (getrlimit(2)) of every process of a container, soft and hard. A process that has a lower limit
// already keeps it. The kernel counts both resources for a user, across all processes of the machine that have the
// user's number, and compares the count with the limit of the one process that asks for more.
const (
	// PendingSignals is RLIMIT_SIGPENDING: the signals with data and the POSIX timers of a user. By default it
	// grows with the machine's memory, and an app of user 0 that reaches the default takes the timers and
	// real-time signals of the host's own programs. A program has a timer for each thread at most.
	PendingSignals = 1024
	// MessageQueueBytes is RLIMIT_MSGQUEUE: the memory of a user's POSIX message queues (mq_overview(7)). It is half of
	// the kernel's default (MQ_BYTES_MAX): an app of user 0 that reaches it leaves the other half to the host's programs,
	// which have the default. Four queues of the default size fit.
	MessageQueueBytes = 409600
)
