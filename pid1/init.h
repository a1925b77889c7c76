/*
 * The pod's init and its channel to the supervisor. Both are the same program, so all numbers are in the machine's byte
 * order.
 *
 *	supervisor (Go, pid1.go)                    init (init.c)
 *	   INIT_BEGIN   ─────────────────────────►  the process that waits for it (first.c) makes init, and ends
 *	                ◄─────────────────────────  INIT_BORN, and of init itself INIT_BEGUN
 *	   INIT_START   ─────────────────────────►  forks a child
 *	                ◄─────────────────────────  INIT_STARTED, in the order of the starts
 *	   INIT_RUNS    ─────────────────────────►  the child has become its program, or
 *	   INIT_KILL                                is to be killed
 *	                ◄─────────────────────────  INIT_ENDED, once for each child that was started
 *	   INIT_UP      ─────────────────────────►  the pod runs: init closes the ready pipe
 *
 * The channel is a SOCK_SEQPACKET pair: a message is one packet. Its end, or the lifeline's (first.c), means that the
 * supervisor has ended: init kills the pod.
 */
#ifndef STAGER_INIT_H
#define STAGER_INIT_H

#include <stdint.h>

/* The maximum number of descriptors in a packet (SCM_MAX_FD, unix(7)). */
#define INIT_PACKET_FILES 253

enum init_kind {
	/* Make init in the namespaces. The packet carries the supervisor's pidfd, and the ready pipe if there is one. */
	INIT_BEGIN = 1,
	/* Fork a child. The packets carry nfiles descriptors: those of the plan (child.h) in its order, then the plan
	 * itself, a memfd, then the folder of a cgroup of version 2 if there is one. */
	INIT_START,
	/* More descriptors of INIT_START, with no other message between. Without descriptors: the start fails. */
	INIT_FILES,
	/* The child is its program: init does not continue it any more when it is stopped. */
	INIT_RUNS,
	/* Kill the child, which the supervisor cannot follow. */
	INIT_KILL,
	/* Close the ready pipe. */
	INIT_UP,

	INIT_BORN,    /* of the process that makes init: error, or init's number in the supervisor's PID namespace */
	INIT_BEGUN,   /* init is ready */
	INIT_STARTED, /* error, or number; then the packet carries a pidfd and, translated by the kernel, the number
	               * in the supervisor's PID namespace (SCM_CREDENTIALS) */
	INIT_ENDED,   /* number and status */
};

struct init_message {
	uint32_t kind;
	uint32_t namespaces; /* INIT_BEGIN: as in clone(2) */
	uint32_t nfiles;     /* INIT_START: in all packets */
	uint32_t in_cgroup;  /* INIT_START: the last descriptor is a cgroup's */
	int32_t number;      /* the child's in init's PID namespace */
	int32_t status;      /* INIT_ENDED: as from wait(2) */
	int32_t error;       /* errno, 0 for none */
	uint32_t call;       /* INIT_STARTED with an error: enum init_call */
};

/* The system call that failed. */
enum init_call { INIT_CLONE = 1, INIT_SETNS, INIT_MAP, INIT_RECEIVE };

/* init's descriptors: those that it is made with, INIT_READY is -1 for none, and those that it makes. The files of a
 * start get the numbers 0, 1, 2 and so on. */
enum init_files {
	INIT_CHANNEL,
	INIT_LIFELINE,
	INIT_SUPERVISOR, /* a pidfd */
	INIT_READY,
	INIT_PASSED,
	INIT_SIGNALS = INIT_PASSED, /* a signalfd of SIGCHLD */
	INIT_PIDS,                  /* init's PID namespace */
	INIT_NFILES,
};

/* Becomes init, in new namespaces as in clone(2); files has INIT_PASSED descriptors. In birth.c. */
void init_live(uint32_t namespaces, const int files[]) __attribute__((noreturn));

/* Returns the number of a descriptor, in birth.c. */
int init_file(enum init_files file);

/* Is init until the supervisor ends; with the ready pipe or without. In init.c. */
void init_serve(uint32_t namespaces, int ready) __attribute__((noreturn));

#endif
