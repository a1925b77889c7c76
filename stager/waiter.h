#ifndef STAGER_WAITER_H
#define STAGER_WAITER_H

#include <stdint.h>

/* Set in the process that goes on to Go, -1 in every other: the read end of
 * the lifeline, and where to write a struct waiter_pids. */
extern int waiter_lifeline, waiter_report;

/* What the waiter is told once the supervisor runs, as PIDs of its namespace. */
struct waiter_pids {
	int32_t signalled; /* gets the daemon's signals */
	int32_t awaited;   /* ends the stager with its exit status */
};

#endif
