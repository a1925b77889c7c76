package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A process can lock its pipe for as long as it likes (splice(2) from an idle terminal), and need not answer for a file
// system of its own. A read, write or close of such an object waits in the kernel, where SIGKILL does not end the wait.
// These are the reasons why no process of the host waits so in a function. A channel that is received from without
// another case is a wait, too.
const (
	unshared = "memory, sockets and pipes of which no app has a descriptor: those of a caller, and those that the supervisor shares with it"
	polls    = "poll(2), fcntl(2) and flags, which take no lock of an object"
	fresh    = "no process has the object yet, or this is not its last descriptor, whose close is no more than a count"
	carried  = "an app's object, on a goroutine of this stream alone; who waits for that does so for heldLimit"
	captured = "an app's output, on the goroutine of this output alone; who waits for that does so for outputLimit"
	typed    = "an app's stdin or terminal, one attachment at a time, on its own goroutine, for which nobody waits"
	released = "an app's object, closed on a goroutine for which nobody waits"
	window   = "a terminal's size, on a goroutine for which nobody waits; no lock of it is held while a process waits"
	notified = "what an app has sent, on the goroutine of its notify socket alone; who waits for that does so for readLimit"
	supplied = "a file that the daemon gives; what is written to the app is on a goroutine for which nobody waits"
	looked   = "an app's files, on a goroutine of container/limited.go, which waits for a limit and has few of them"
	copied   = "a user's own command, `cp`: no pipe and no device of an app, and a file of its own system only holds up this command"
	called   = "the call-in's own pipes; it is waited for until a limit after its kill (Call.await)"
	awaited  = "the end of a command or an attachment, which comes with its caller's end: within collectLimit and heldLimit"
	client   = "a client of the server and the pipes, terminal or socket between; the call's end ends them"
)

// touches has the functions of the files that hold objects of apps, by the reason.
func touches() map[string]map[string]string {
	return map[string]map[string]string{
		"callins/*.go": {
			unshared: `CopyLog Listen ServeDocument Server.Serve Server.serve askDocument askRun attach between.passed
				between.pipeInput carrier.await conn.receive conn.send copying.close copying.end copying.finish copying.move
				copying.open dial finishRun follow followSize logOutput.write orderedObject.MarshalJSON packet.close
				printDocument readSealed readSettings restart run runTerminal sealed sendStreams widen writeAll awaitStart`,
			polls: `carrier.awaitReadable carrier.watch hasEvent hasGone isReadable nonblocking pauseOf poll waitReadable
				withDescriptor`,
			fresh:   "carriers.add carriers.discard carriers.start",
			carried: "carrier.carry carrier.copy carrier.read carriers.awaitGone typeEnd",
			window:  "carriers.resize",
			awaited: "runCalls.run serveAttach serveRun",
		},
		"callins/plain/*.c": {
			unshared: `ask close_output close_theirs copy make_output plain_dial plain_run plain_send plain_status print receive
				release_signals settings_size take_packet take_settings take_signals widen`,
			polls: "await plain_wait",
		},
		"supervisor/output/*.go": {
			unshared: `Attachment.Close Attachment.openInput Attachment.read logWriter newAttachment newPoller sender.close sender.take
				sender.write`,
			polls:    "Attachment.awaitTyped duplicate",
			fresh:    "Streams.openStdin Streams.takeConsole closePipe openOutput pipe",
			captured: "Streams.Finish capture.finish capture.loop capture.read poller.setAsync unread",
			typed:    "Attachment.stopTyping put relay.passOn",
			released: "release",
			window:   "setSize",
			supplied: "feed",
		},
		"boot/activation/*.go": {
			unshared: "NotifySocket.Close NotifySocket.awaitRead NotifySocket.prepare OpenNotify elsewhere open",
			notified: "NotifySocket.serve",
		},
		"container/identity/*.go": {looked: "Of OpenRegular eachLine home lookUp resolveFile"},
		"launcher/copies/*.go": {
			copied: `Copy counter.Read Source.Close Source.Pack Target.Close Target.unpack Tree.ReadFile Tree.Source Tree.Target Tree.open
				Tree.target packer.addEntry packer.addFile packer.addFolder packer.addLink reopen unpacker.find unpacker.forget
				unpacker.makeFile unpacker.makeFolder unpacker.makeLink`,
		},
		"launcher/pods/callin.go": {called: "Pod.enter Pod.notExecuted newFeed settingsFeed.close settingsFeed.isRead"},
		"cri/server/command.go":   {client: "messages.pass"},
		"cri/server/streams.go": {
			client: `carryPipes carryTerminal join noting.Write openTerminal outputTo resize streamRuntime.PortForward streams.input`,
		},
	}
}

// Every call in these files that a locked object could hold up is in a function that the table has, and nothing else is
// there.
func TestNoProcessOfTheHostWaitsForWhatAnAppHasLocked(t *testing.T) {
	t.Parallel()
	var found, listed []string
	for files, reasons := range touches() {
		if left(t, files) {
			continue
		}
		for _, functions := range reasons {
			for function := range strings.FieldsSeq(functions) {
				listed = append(listed, files+" "+function)
			}
		}
		paths, err := filepath.Glob(filepath.Join("../..", files))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", files, len(paths), err)
		}
		for _, path := range paths {
			functions := touchingC
			if filepath.Ext(path) == ".go" {
				functions = touching
			}
			for _, function := range functions(t, path) {
				found = append(found, files+" "+function)
			}
		}
	}
	slices.Sort(listed)
	if diff := cmp.Diff(listed, unique(found)); diff != "" {
		t.Errorf("the table (-) and the code (+) differ:\n%s", diff)
	}
}

// touching returns the functions of a Go file that make a call which can wait, or that wait for a channel alone.
func touching(t *testing.T, path string) (functions []string) {
	t.Helper()
	if strings.HasSuffix(path, "_test.go") {
		return nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	calls := regexp.MustCompile(`^(Read|Write|Wait|Open|Reopen|Splice|Tee|Vmsplice|Sendfile|Copy|Close|Poll|Select|Control$|Fcntl|Ioctl|SetNonblock|Flock)`)
	for _, declared := range file.Decls {
		function, ok := declared.(*ast.FuncDecl)
		if !ok {
			continue
		}
		var cases []ast.Stmt // of a select, whose wait has another end
		ast.Inspect(function, func(node ast.Node) bool {
			is := false
			switch node := node.(type) {
			case *ast.CommClause:
				cases = append(cases, node.Comm)
			case *ast.UnaryExpr:
				is = node.Op == token.ARROW && !slices.ContainsFunc(cases, func(s ast.Stmt) bool {
					return s != nil && s.Pos() <= node.Pos() && node.Pos() < s.End()
				})
			case *ast.CallExpr:
				called, ok := node.Fun.(*ast.SelectorExpr)
				is = ok && calls.MatchString(called.Sel.Name)
			}
			if is {
				functions = append(functions, nameOf(function))
			}
			return true
		})
	}
	return functions
}

// nameOf returns a function's name, after its receiver's.
func nameOf(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return function.Name.Name
	}
	receiver := function.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	return receiver.(*ast.Ident).Name + "." + function.Name.Name
}

// touchingC is touching for a file in C, whose style puts a function's name and its braces at the start of lines.
func touchingC(t *testing.T, path string) (functions []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begins := regexp.MustCompile(`^[a-z].*?(\w+)\(.*\)$`)
	calls := regexp.MustCompile(`\b(read|write|splice|tee|vmsplice|sendfile|close|dup2|poll|ioctl|fcntl|recv|recvmsg|sendmsg|open)\(`)
	name := ""
	for line := range strings.Lines(string(text)) {
		if match := begins.FindStringSubmatch(strings.TrimSuffix(line, "\n")); match != nil {
			name = match[1]
		} else if calls.MatchString(line) && strings.HasPrefix(line, "\t") {
			functions = append(functions, name)
		}
	}
	return functions
}
