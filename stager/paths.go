package main

// Every path, descriptor and variable that the stager shares with the daemon or
// the apps, once: who makes it, and who may rely on it.

// Made by the daemon before the stager starts (Kurma Stager Specification,
// "Filesystem Configuration").
const (
	manifestPath = "/manifest"
	layersDir    = "/layers"  // layersDir/sha512-… are the layers, read-only
	volumesDir   = "/volumes" // volumesDir/NAME are the pod's volumes
	cgroupDir    = "/sys/fs/cgroup"

	// journalSocket is the host's journald's, where the daemon gives it to
	// the stager, the folder rather than the socket alone: it survives journald's restart.
	journalSocket = "/run/systemd/journal/socket"
)

// Made by the stager in its own root. Call-ins that enter the stager's mount
// namespace see them; nobody else may rely on them.
const (
	runDir          = "/run/stager"          // 0700; the socket is in it, see callins.ControlSocket
	privateDir      = "/run/stager/private"  // a tmpfs that only the supervisor's mount namespace has
	logDir          = "/var/log/stager"      // logDir/APP are the logs in CRI's format, kept until the daemon removes the pod
	scratchDir      = "/run/stager-scratch"  // upper and work directories
	notifyDir       = privateDir + "/notify" // notifyDir/N is the nth app's notify socket
	emptyVolumesDir = "/run/stager-volumes"  // of volumes of kind "empty"
	resolvConf      = "/etc/resolv.conf"     // the daemon's or the stager image's; copied into apps
)

// notifyPath is where an app finds its notify socket, by NOTIFY_SOCKET: in its
// /dev, which no volume covers.
const notifyPath = "/dev/stager-notify"

// appsCgroup is the parent of the apps' cgroups, below every mounted hierarchy.
const appsCgroup = "/apps"

// Descriptors that the daemon passes.
const (
	readyDescriptor    = 4 // as documented
	oldReadyDescriptor = 3 // as some versions of Kurma have it
)

// Variables of the stager's environment.
const (
	// stdioPrefix APP stdioSuffixes: descriptors that take the place of an
	// app's stdin, stdout and stderr, in decimal; made by some versions of Kurma.
	stdioPrefix = "STAGER_CONTAINER_"

	// waiterVariable makes the program the supervisor, see waiter.c, which alone
	// makes it.
	waiterVariable = "_STAGER_SUPERVISOR"
)

// stdioSuffixes are in the order of the descriptors 0, 1 and 2.
var stdioSuffixes = [3]string{"_STDIN", "_STDOUT", "_STDERR"} //nolint:gochecknoglobals // a table that is only read
