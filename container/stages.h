/*
 * Continues the processes of a start that an app has stopped; stages.c says why and how.
 */
#ifndef STAGER_STAGES_H
#define STAGER_STAGES_H

/* Starts the thread, once for the process. Returns 0 or an errno. */
int stages_watch(void);

/* Adds change to the number of starts under way. */
void stages_mark(int change);

#endif
