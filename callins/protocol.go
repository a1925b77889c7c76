// Package callins holds the executables that a Kurma daemon calls in a running
// pod (status, logs, run and attach: the caller's side) and the Server that
// answers them inside the supervisor.
//
// A call-in is a row in two tables, which the program's main passes: a CallIn by the
// name under which the daemon executes the program, and, if it needs the supervisor, a Handler
// by the name of its request in Server.Handlers. CallIns and Handlers return the rows of the four
// standard call-ins, to which a program adds its own. Most ask for a JSON document and print
// it, which is a line on each side:
//
//	"uptime": callins.PrintDocument("uptime"),                    // a CallIn
//	"uptime": callins.ServeDocument(func(…) (any, error) { … }),  // a Handler
package callins

// The protocol, version 4. A SOCK_SEQPACKET unix socket; one packet is one JSON object of at most maxPacket bytes,
// with descriptors (SCM_RIGHTS) as in the tables; one connection is one call. Both sides are the same program, so a
// version that differs is refused and not negotiated.
//
//	caller (host's PID namespace)                  supervisor (daemon's PID namespace)
//	  │ request {"version":4,"call":C,"app":A,…}  + descriptors of C  │
//	  ├───────────────────────────────────────────────────────────────►
//	  │ reply   {"kind":K,…}                      + descriptors of K  │
//	  ◄───────────────────────────────────────────────────────────────┤
//
//	call       descriptors                     replies, in order
//	run        settings, streams               started, exit
//	attach     none                            streams, exit or dropped
//	restart    none                            exit
//	another    none                            process (for each number that its handler needs), document
//	any                                        error, in place of the next one, is the last one
//
//	kind       descriptors                     meaning
//	process    none; credentials               the packet carries a PID as SCM_CREDENTIALS, which the kernel
//	                                           translates into the caller's PID namespace (unix(7)); the caller
//	                                           answers with the note {"process":N}, 0 or absent for none
//	document   a sealed memfd                  JSON, numbers of processes are the caller's
//	started    none                            the command runs
//	streams    stdout[, stderr][, stdin]       attached; "stderr" and "stdin" say which follow
//	exit       none                            the command or app ended, with "code"; of restart: the app runs
//	dropped    none                            the caller did not read and has been detached
//	error      none                            "message", and "code" for the caller to exit with
//
// After the first reply the caller of run and attach may send notes:
//
//	{"signal":N}                   run: send signal N of forwarded to the command, and SIGCONT after one of endSignals
//	{"width":W,"height":H}         run, attach: the caller's terminal has a new size
//
// The streams of run are stdin, stdout and stderr; without stderr if the settings ask for a terminal. Each is the
// end of a pipe that the caller has made for it, or a null device, which the supervisor replaces by the app's. The
// supervisor copies between the pipes and the command (carriers). It closes the connection once all output is in the
// pipes, which are closed then, or sends an error after "exit" if output is lost.
//
// End of file from the caller of run kills the command with all of its session; from
// the caller of attach it ends the attachment only. The settings are a sealed memfd
// because they may be larger than a packet, and so is a document.
const (
	protocolVersion = 4
	maxPacket       = 16 << 10 // bytes
	maxFiles        = 4        // descriptors in a packet
)

// The requests of this package's call-ins, for Server.Handlers. The handlers are
// serveStatus, serveIsolators, serveRun, serveAttach and serveRestart.
const (
	requestStatus    = "status"
	requestIsolators = "isolators" // of status --isolators
	requestRun       = "run"
	requestAttach    = "attach"
	requestRestart   = "restart"
)

// request opens a connection. Width, Height and Term are the caller's terminal, for
// run with tty.
type request struct {
	Version int      `json:"version"`
	Call    string   `json:"call"`
	App     string   `json:"app,omitempty"`   // run, attach, restart
	Args    []string `json:"args,omitempty"`  // of a document
	Input   bool     `json:"input,omitempty"` // attach: the caller's stdin is not the null device
	NoOut   bool     `json:"noOut,omitempty"` // attach: the caller's stdout is the null device
	NoErr   bool     `json:"noErr,omitempty"` // attach: likewise stderr
	Width   uint16   `json:"width,omitempty"`
	Height  uint16   `json:"height,omitempty"`
	Term    string   `json:"term,omitempty"`
}

// note is what a caller sends after its request.
type note struct {
	Signal  int    `json:"signal,omitempty"`
	Width   uint16 `json:"width,omitempty"`
	Height  uint16 `json:"height,omitempty"`
	Process int    `json:"process,omitempty"`
}

type kind string

const (
	kindProcess  kind = "process"
	kindDocument kind = "document"
	kindStarted  kind = "started"
	kindStreams  kind = "streams"
	kindExit     kind = "exit"
	kindDropped  kind = "dropped"
	kindError    kind = "error"
)

// reply is what the supervisor sends; only the fields of its kind count.
type reply struct {
	Kind kind `json:"kind"`

	Code    int    `json:"code,omitempty"`    // exit, error
	Message string `json:"message,omitempty"` // error

	Terminal bool `json:"terminal,omitempty"` // streams, from here on
	Stdin    bool `json:"stdin,omitempty"`
	Stderr   bool `json:"stderr,omitempty"`
}
