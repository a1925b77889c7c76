// Package names holds every name that a stager goes by and every path, descriptor
// and variable that it shares with the daemon, its apps or itself, each of them
// once. To rename a stager, edit the first two groups of constants. The other
// packages, the C files, the image, the scripts and the tests take the names from here.
package names

// What a fork renames. Two stagers on one machine may share all of it: each has
// a root of its own.
const (
	// Program is the base name of the program in the image's root. Called by
	// it, without arguments, the program is the stager.
	Program = "stager"

	// Image is the name of the stager image, without a version.
	Image = "kurma.io/stager/reference"

	// RunDir is made by the stager in its own root, with mode 0700.
	RunDir = "/run/stager"

	// LogDir has a folder LogDir/APP for each app, with its log in the CRI format.
	// It is kept until the daemon deletes the pod. A daemon reads the path from
	// LogDirAnnotation and does not know it.
	LogDir = "/var/log/stager"

	// ControlSocket is the supervisor's socket in the stager's mount namespace, mode
	// 0600. Only the call-ins may rely on it.
	ControlSocket = RunDir + "/control.sock"
)

// Annotations. The first two are of an app in the pod manifest; the last one is of the
// stager image.
const (
	StdinAnnotation  = "kurma.io/stager/stdin"      // "null" or "stream"
	TTYAnnotation    = "kurma.io/stager/tty"        // "true" or "false"
	LogDirAnnotation = "kurma.io/stager/log-folder" // LogDir
)

// The call-ins: the names under which a daemon executes the program in
// CallInDir, which the Kurma Stager Specification fixes.
const (
	CallInDir = "/opt/stager"

	Attach = "attach"
	Logs   = "logs"
	Run    = "run"
	Status = "status"
)

// CallIns returns the names of all call-ins, sorted. The image has a link
// CallInDir/NAME to the program for each.
func CallIns() []string { return []string{Attach, Logs, Run, Status} }

// Made from the names above.
const (
	Exec            = "/" + Program                 // the path of the program in the image's root
	PrivateDir      = RunDir + "/private"           // a tmpfs that only the supervisor's mount namespace has
	NotifyDir       = PrivateDir + "/notify"        // NotifyDir/N is the nth app's notify socket
	ScratchDir      = RunDir + "-scratch"           // upper and work directories
	EmptyVolumesDir = RunDir + "-volumes"           // of volumes of kind "empty"
	NotifySocket    = "/dev/" + Program + "-notify" // an app's, by NOTIFY_SOCKET: in its /dev, which no volume covers
	Executor        = "kurma-" + Program            // what apps find in the variable "container"
)

// Cgroups of the stager's making, below every mounted hierarchy.
const (
	AppsCgroup = "/apps"       // the parent of the apps' cgroups
	LeafCgroup = "/" + Program // the stager's own processes', on cgroup v2 alone
)

// Variables by which the program finds that it was started by itself.
const (
	SupervisorVariable = "_STAGER_SUPERVISOR" // the supervisor, started by waiter.c
	ShimVariable       = "_STAGER_SHIM"       // the shim, started by package container
)

// Made by the daemon before the stager starts (Kurma Stager Specification,
// "Filesystem Configuration").
const (
	Manifest   = "/manifest"
	LayersDir  = "/layers"  // LayersDir/sha512-… are the layers, read-only
	VolumesDir = "/volumes" // VolumesDir/NAME are the pod's volumes
	CgroupDir  = "/sys/fs/cgroup"

	// JournalSocket is the host's journald's, if the daemon gives it to the
	// stager. The daemon binds the folder, not the socket alone, which survives a restart of journald.
	JournalSocket = "/run/systemd/journal/socket"

	// ResolvConf is the daemon's or the stager image's; it is copied into apps.
	ResolvConf = "/etc/resolv.conf"
)

// Descriptors that the daemon passes.
const (
	ReadyDescriptor    = 4 // as documented
	OldReadyDescriptor = 3 // as some versions of Kurma have it
)

// Variables that the daemon passes: StdioPrefix + APP + a suffix is the number of a
// descriptor that takes the place of the app's stdin, stdout or stderr, made by some versions of Kurma.
const (
	StdioPrefix  = "STAGER_CONTAINER_"
	StdinSuffix  = "_STDIN"
	StdoutSuffix = "_STDOUT"
	StderrSuffix = "_STDERR"
)
