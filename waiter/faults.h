#ifndef STAGER_FAULTS_H
#define STAGER_FAULTS_H

/* Puts the handler of faults.c in front of the Go runtime's, which runs already. It is called once. Returns -1 with
 * errno after an error. */
int faults_guard(void);

#endif
