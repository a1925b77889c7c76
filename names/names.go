// Package names has every name of a stager, and every path, descriptor and variable that
// it shares with the daemon, its apps or itself. To rename a stager, edit the first two
// groups of constants, and then run "go generate ./names/...", which writes the header of the
// C files: the packages, the image, the Makefile, the scripts and the tests use this package.
package names

// What a fork renames. Two stagers on one machine may have the same names: each has a
// root of its own.
const (
	// Program is the base name of the program in the image's root. Called by
	// it, without arguments, the program is the stager.
	Program = "stager"

	// Image is the name of the stager image, without a version.
	Image = "kurma.io/stager/reference"

	// RunDir is made by the stager in its own root, with mode 0700.
	RunDir = "/run/stager"

	// LogDir has a folder LogDir/APP for each app, with its log in the CRI format.
	// The daemon reads this path from the image's LogDirAnnotation, and keeps the folder
	// until it deletes the pod.
	LogDir = "/var/log/stager"

	// LastStatus is the file in LogDir that the stager writes at the end of a pod that did not
	// fail to start: what the call-in status would print of the ended pod.
	LastStatus = "status.json"

	// EventsFile has a line of JSON for each change of an app's state, see supervisor.Change, and EventsFile with
	// OldSuffix the lines before them. Once the pod is ready, it has the apps' starts. The daemon reads this path from
	// the image's EventsAnnotation.
	EventsFile = LogDir + "/events.jsonl"
	OldSuffix  = ".old"

	// ControlSocket is the supervisor's socket in the stager's mount namespace, mode
	// 0600. Only the call-ins may rely on it.
	ControlSocket = RunDir + "/control.sock"
)

// Annotations. The first is of the pod, the next eight are of an app in the pod manifest, the tenth is of an app or its
// image; the others are of the stager image.
const (
	HostnameAnnotation       = "kurma.io/stager/hostname"          // of the pod's UTS namespace
	StdinAnnotation          = "kurma.io/stager/stdin"             // "null", "stream" or "once"
	TTYAnnotation            = "kurma.io/stager/tty"               // "true" or "false"
	TTYSizeAnnotation        = "kurma.io/stager/tty-size"          // "80x24", of the terminal until a caller sets another
	HideProcessesAnnotation  = "kurma.io/stager/hide-processes"    // "true" or "false"
	EnvironmentAnnotation    = "kurma.io/stager/environment"       // a list of NAME=value, as JSON
	SeccompProfileAnnotation = "kurma.io/stager/seccomp-profile"   // as Kubernetes has it, JSON
	OwnPIDsAnnotation        = "kurma.io/stager/own-pid-namespace" // "true" or "false"
	NumericIDsAnnotation     = "kurma.io/stager/numeric-ids"       // "true" or "false"
	StopSignalAnnotation     = "kurma.io/stager/stop-signal"       // the name or number of a signal
	LogDirAnnotation         = "kurma.io/stager/log-folder"        // LogDir
	EventsAnnotation         = "kurma.io/stager/events"            // EventsFile
	IsolatorsAnnotation      = "kurma.io/stager/isolators"         // the product's own, separated by spaces
	KeysAnnotation           = "kurma.io/stager/config-keys"       // the product's own, separated by spaces
)

// Annotations of an app or its image for the app's health check. Durations are as in "1m30s".
const (
	HealthCommandAnnotation     = "kurma.io/stager/health-cmd"          // for /bin/sh; or words, a JSON array; or "none"
	HealthIntervalAnnotation    = "kurma.io/stager/health-interval"     // a duration
	HealthTimeoutAnnotation     = "kurma.io/stager/health-timeout"      // a duration
	HealthRetriesAnnotation     = "kurma.io/stager/health-retries"      // a number
	HealthStartPeriodAnnotation = "kurma.io/stager/health-start-period" // a duration
	HealthOnFailureAnnotation   = "kurma.io/stager/health-on-failure"   // "none" or "restart"
	HealthReadyAnnotation       = "kurma.io/stager/health-ready"        // "true" or "false"
)

// Annotations of an image that was converted from one of Docker or OCI, as docker2aci has them: JSON arrays of the
// words of exec. Exec is both, one after the other.
const (
	EntrypointAnnotation = "appc.io/docker/entrypoint"
	CommandAnnotation    = "appc.io/docker/cmd" // arguments replace it
)

// The call-ins: the names under which a daemon executes the program in
// CallInDir, which the Kurma Stager Specification fixes, but for Restart.
const (
	CallInDir = "/opt/stager"

	Attach  = "attach"
	Logs    = "logs"
	Restart = "restart"
	Run     = "run"
	Status  = "status"
)

// CallIns returns the names of all call-ins, sorted. The image has a link
// CallInDir/NAME to the program for each.
func CallIns() []string { return []string{Attach, Logs, Restart, Run, Status} }

// Made from the names above.
const (
	Exec            = "/" + Program                 // the path of the program in the image's root
	PrivateDir      = RunDir + "/private"           // a tmpfs that only the supervisor's mount namespace has
	RuntimeDir      = PrivateDir + "/runtime"       // a tmpfs for the container runtime's own files
	UserNamespace   = PrivateDir + "/user"          // the pod's user namespace, a file of the kernel's
	SharedMemoryDir = RuntimeDir + "/shm"           // a tmpfs, the /dev/shm of the pod's apps
	NotifyDir       = PrivateDir + "/notify"        // NotifyDir/N is the nth app's notify socket
	ScratchDir      = RunDir + "-scratch"           // upper and work directories
	EmptyVolumesDir = RunDir + "-volumes"           // of volumes of kind "empty"
	NotifySocket    = "/dev/" + Program + "-notify" // an app's, by NOTIFY_SOCKET: in its /dev, which no volume covers
	Executor        = "kurma-" + Program            // what apps find in the variable "container"
)

// Cgroups that the stager makes, below every mounted hierarchy.
const (
	AppsCgroup = "/apps"       // the parent of the apps' cgroups
	LeafCgroup = "/" + Program // has the stager's own processes, on cgroup v2
)

// Variables that the program sets for its own processes, to select their role.
const (
	RoleVariable = "_STAGER_ROLE" // the supervisor and the init of a stager without cgo (package goinit)
	ShimVariable = "_STAGER_SHIM" // the shim, started by package container
)

// RunNameVariable has what a message of Run begins with, in place of its name: a daemon that gives its command another
// name sets it in the call-in's environment.
const RunNameVariable = "STAGER_RUN_NAME"

// ConfigFile is configuration in the stager's image: the keys of stagerConfig, for a daemon that passes none. It may be
// missing.
const ConfigFile = "/etc/" + Program + "/config.json"

// Made by the daemon before the stager starts (Kurma Stager Specification,
// "Filesystem Configuration").
const (
	Manifest   = "/manifest"
	LayersDir  = "/layers"  // LayersDir/sha512-… are the layers, read-only
	VolumesDir = "/volumes" // VolumesDir/NAME are the pod's volumes
	CgroupDir  = "/sys/fs/cgroup"

	// JournalSocket is the socket of the host's journald, if the daemon binds its folder
	// into the stager's root. The folder survives a restart of journald, the socket does not.
	JournalSocket = "/run/systemd/journal/socket"

	// ResolvConf is the daemon's or the stager image's; it is copied into apps.
	ResolvConf = "/etc/resolv.conf"
)

// Descriptors that the daemon passes.
const (
	ReadyDescriptor    = 4 // as documented
	OldReadyDescriptor = 3 // as some versions of Kurma have it
)

// Variables that some versions of Kurma pass: StdioPrefix + APP + a suffix is the number of
// a descriptor that replaces the app's stdin, stdout or stderr.
const (
	StdioPrefix  = "STAGER_CONTAINER_"
	StdinSuffix  = "_STDIN"
	StdoutSuffix = "_STDOUT"
	StderrSuffix = "_STDERR"
)
