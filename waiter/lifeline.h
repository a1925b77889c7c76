#ifndef STAGER_LIFELINE_H
#define STAGER_LIFELINE_H

/* Ties the supervisor, PID 1 of the pod, to the waiter, see lifeline.c. Returns the waiter's end, or -1 with errno. */
int lifeline_start(void);

#endif
