/* Names that C files share with package names. "go generate ./names/..." writes this file. */
#ifndef STAGER_NAMES_H
#define STAGER_NAMES_H

/* The base name of argv[0] that makes the program a stager. */
#define STAGER_PROGRAM "stager"

/* The variable that makes the program the shim. Its value is the first of the shim's descriptors, in decimal. */
#define SHIM_ENV "_STAGER_SHIM"

/* The folder of the pod's volumes in the stager's root. */
#define VOLUMES_DIR "/volumes"

/* The Stager Manifest. */
#define MANIFEST "/manifest"

/* The supervisor's socket. */
#define CONTROL_SOCKET "/run/stager/control.sock"

/* The base names of argv[0] that make the program a call-in. */
#define RUN "run"
#define STATUS "status"

#endif
