/*
 * The protocol between the waiter (waiter.c) and the supervisor (waiter.go).
 * Both are the same program, so all numbers are in the machine's byte order.
 *
 *	waiter                                             supervisor
 *	   ◄──────────────────────────────  WAITER_SETTLE    when it has read the manifest
 *	   ◄──────────────────────────────  WAITER_LIFELINE  next, from PID 1 of a PID namespace
 *	   ◄──────────────────────────────  WAITER_UP        when the pod runs
 *	   ◄──────────────────────────────  WAITER_HELPER    for each helper process
 *	   WAITER_STOP  ──────────────────────────────────►  for each signal of the daemon
 *
 * The channel is a SOCK_SEQPACKET pair: a message is one packet, and end of file
 * means that the other side has ended. The supervisor finds its descriptor in the
 * environment, with the namespaces that the waiter has made (names.SupervisorVariable).
 *
 * A helper process is out of the apps' reach: it is in its own PID namespace,
 * below the waiter's, which is a sibling of the pod's PID namespace.
 *
 *	waiter
 *	 ├─ supervisor            PID 1 of the pod's PID namespace
 *	 └─ guard                 PID 1 of the helper's; this program, in guard.c
 *	     └─ helper
 *
 * The guard and the supervisor share a SOCK_STREAM pair, the leash. When the
 * supervisor shuts its side down, or ends, the guard kills the helper. When the
 * helper has ended, the guard kills what the helper has left, writes
 * the helper's wait status to the leash, and ends. When the waiter ends, the
 * kernel kills the guard (PR_SET_PDEATHSIG), and with the guard its PID namespace.
 */
#ifndef STAGER_WAITER_H
#define STAGER_WAITER_H

#include <stdint.h>

/* The maximum number of a helper's files from descriptor 3 on. */
#define WAITER_MAX_FILES 32

enum waiter_kind {
	/* The namespaces that the pod needs, and the ready pipe. If the supervisor is in other
	 * namespaces, it ends afterwards, and the waiter starts it again. */
	WAITER_SETTLE = 1,
	/* The pod runs: the waiter closes its copy of the ready pipe. */
	WAITER_UP,
	/* Start a helper. The packet carries the descriptors of enum waiter_file. */
	WAITER_HELPER,
	/* Kill the pod if the supervisor cannot end (lifeline.c). The packet carries the lifeline's end and
	 * the supervisor's PID namespace. */
	WAITER_LIFELINE,
};

/* The waiter's messages, the uint32_t alone. Apps can send the supervisor any signal,
 * and nothing on the channel, so only the daemon can ask for the pod's end. */
enum waiter_order {
	WAITER_STOP = 1, /* stop the pod */
};

/* The supervisor's messages. The fields of other kinds are 0. */
struct waiter_request {
	uint32_t kind;
	uint32_t namespaces; /* WAITER_SETTLE: as in clone(2) */
	int32_t ready;       /* WAITER_SETTLE: the ready pipe's descriptor, or -1 */
	uint32_t own_mounts; /* WAITER_HELPER: make a new mount namespace and /proc */
};

/* The descriptors that WAITER_HELPER carries, in this order. */
enum waiter_file {
	WAITER_PLAN,   /* a memfd: struct waiter_plan */
	WAITER_MOUNTS, /* the supervisor's mount namespace */
	WAITER_REPORT, /* a pipe: takes a struct waiter_report. WAITER_READY and then end of file mean
			* that the helper's program runs */
	WAITER_LEASH,  /* a SOCK_STREAM socket, see above; the guard writes an int32_t */
	WAITER_STDIN,
	WAITER_OUTPUT, /* stdout and stderr */
	WAITER_FILES,  /* the helper's own, from 3 on; up to WAITER_MAX_FILES */
};

/* What a helper executes. The strings follow, each ended by NUL: arguments, then
 * environment. The first argument is the program's path. */
struct waiter_plan {
	uint32_t size; /* of the whole plan, in bytes */
	uint32_t nargs, nenv;
};

/* What failed in the start of a helper; helpers.go has the text. */
enum waiter_step {
	WAITER_FORK = 1,
	WAITER_READ_PLAN,
	WAITER_JOIN_MOUNTS,
	WAITER_MOUNT_PROC,
	WAITER_PASS_FILES,
	WAITER_EXEC,
	WAITER_READY, /* no failure: the helper is about to execute its program */
};

struct waiter_report {
	uint32_t step;
	uint32_t error; /* errno */
};

/* Ties the supervisor, PID 1 of the pod, to the waiter, see lifeline.c. Returns the waiter's end, or -1 with errno. */
int lifeline_start(void);

/* Puts the handler of faults.c in front of the Go runtime's, which runs already. The supervisor calls it once. Returns
 * -1 with errno after an error. */
int faults_guard(void);

#endif
