/* What the supervisor's threads in C share. */
#ifndef STAGER_THREAD_H
#define STAGER_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Starts a thread that the Go runtime does not know. It blocks all signals, whose handlers run on the Go runtime's
 * threads, but for those that the C library needs in each thread, for setgroups(3). Returns an error number, or 0. */
static int start_thread(pthread_t *thread, void *(*run)(void *), void *argument)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int error;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(thread, &attributes, run, argument);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return error;
}

#endif
