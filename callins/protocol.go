// Package callins holds the executables that a Kurma daemon calls in a running
// pod, status, run and attach (one file each, the caller's side), and the
// Server that answers them inside the supervisor.
package callins

// The protocol, version 1. A SOCK_SEQPACKET unix socket; one packet is one JSON
// object of at most maxPacket bytes, with descriptors (SCM_RIGHTS) where the table says
// so; one connection is one call. Both sides are the same program, so a version
// that differs is refused and not negotiated.
//
//	caller (host PID namespace)                    supervisor (pod's PID namespace)
//	  │ request {"version":1,"call":C,"app":A,…}  + descriptors of C  │
//	  ├───────────────────────────────────────────────────────────────►
//	  │ reply   {"kind":K,…}                      + descriptors of K  │
//	  ◄───────────────────────────────────────────────────────────────┤
//
//	call       descriptors                     replies, in order
//	status     none                            app (one for each app, in the pod's order), end
//	isolators  none                            document
//	run        settings, stdin, stdout, stderr started or terminal, exit
//	attach     none                            streams, exit or dropped
//	any                                        error, in place of the next one, is the last one
//
//	kind       descriptors                     meaning
//	app        none; credentials               one app's state; where "running", the packet carries the app's PID
//	                                           as SCM_CREDENTIALS, which the kernel translates
//	                                           into the caller's PID namespace (unix(7))
//	end        none                            no more apps
//	document   a sealed memfd                  JSON for the user
//	started    none                            the command runs
//	terminal   the terminal's master           the command runs, on this terminal; the caller owns the size
//	streams    stdout[, stderr][, stdin]       attached; "stderr" and "stdin" say which follow
//	exit       none                            the command or app ended, with "code"
//	dropped    none                            the caller did not read and is attached no more
//	error      none                            "message", and "code" for the caller to exit with
//
// After the first reply the caller of run and attach may send notes:
//
//	{"signal":N}                   run: send signal N, one of forwarded, to the command
//	{"width":W,"height":H}         attach: the caller's terminal has a new size
//
// End of file from the caller of run kills the command with all of its session; from
// the caller of attach it ends the attachment only. The settings are a sealed memfd
// because they may be larger than a packet.
const (
	protocolVersion = 1
	maxPacket       = 16 << 10 // bytes
	maxFiles        = 4        // descriptors in a packet
)

type call string

const (
	callStatus    call = "status"
	callIsolators call = "isolators"
	callRun       call = "run"
	callAttach    call = "attach"
)

// request opens a connection. Width, Height and Term are the caller's terminal, for
// run with tty.
type request struct {
	Version int    `json:"version"`
	Call    call   `json:"call"`
	App     string `json:"app,omitempty"`
	Width   uint16 `json:"width,omitempty"`
	Height  uint16 `json:"height,omitempty"`
	Term    string `json:"term,omitempty"`
}

// note is what a caller sends after its request.
type note struct {
	Signal int    `json:"signal,omitempty"`
	Width  uint16 `json:"width,omitempty"`
	Height uint16 `json:"height,omitempty"`
}

type kind string

const (
	kindApp      kind = "app"
	kindEnd      kind = "end"
	kindDocument kind = "document"
	kindStarted  kind = "started"
	kindTerminal kind = "terminal"
	kindStreams  kind = "streams"
	kindExit     kind = "exit"
	kindDropped  kind = "dropped"
	kindError    kind = "error"
)

// reply is what the supervisor sends; the fields that count are those of its kind.
type reply struct {
	Kind kind `json:"kind"`

	Code    int    `json:"code,omitempty"`    // exit, error
	Message string `json:"message,omitempty"` // error

	App     string `json:"app,omitempty"`     // app, from here on
	Running bool   `json:"running,omitempty"` // the credentials carry its PID
	Exited  bool   `json:"exited,omitempty"`  // Code and Reason say how
	Ending  bool   `json:"ending,omitempty"`  // its process has ended, its last output is on the way
	Reason  string `json:"reason,omitempty"`

	Terminal bool `json:"terminal,omitempty"` // streams, from here on
	Stdin    bool `json:"stdin,omitempty"`
	Stderr   bool `json:"stderr,omitempty"`
}
