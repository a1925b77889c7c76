/*
 * One heap for all threads of the C library. glibc gives each thread one of its own at the thread's first
 * malloc(3), which is a page of memory for each of the supervisor's threads, and C code here allocates next to nothing.
 */
#include <malloc.h>

#ifdef __GLIBC__
static void __attribute__((constructor)) share_heap(void)
{
	mallopt(M_ARENA_MAX, 1);
}
#endif
