/* What the C files of the plain calls share. */
#ifndef STAGER_PLAIN_H
#define STAGER_PLAIN_H

#include <stddef.h>

/* The largest packet of the protocol (callins/protocol.go), in bytes. */
#define PACKET_MAX (16 * 1024)

/* The seals of a memfd that no process can change (callins/input.go). */
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* A call of run that C has begun and cannot end: its request has been sent, or could not be, and the next packet from
 * the supervisor is neither "started" nor, after that one, "exit"; or none came in time. */
struct begun {
	int connection; /* -1 for none */
	int signal;     /* that asked the call to end before its command ran; 0 for none */
};

extern struct begun plain_begun;

/* Connects to the supervisor. A step of status that takes longer than two seconds fails, and Go asks again and waits
 * longer. Returns -1 after an error; in plain.c. */
int plain_dial(void);

/* Sends one packet with descriptors, if any. Returns 0 if that fails; in plain.c. */
int plain_send(int connection, const char *text, const int *files, size_t nfiles);

/* Waits until a descriptor has one of the events, or until limit_ms has passed (-1: no limit). Returns the events that
 * it has; in plain.c. */
short plain_wait(int fd, short events, int limit_ms);

/* Runs a command in the app, and ends the process as the command ends; in run.c. Returns if Go has to make the call,
 * or, with plain_begun, to end it. */
void plain_run(const char *app);

/* Prints the pod's status and ends the process; in status.c. Returns if Go has to make the call. */
void plain_status(void);

#endif
