package callins

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/supervisor"
)

func (s *Server) status(c conn) error {
	for _, app := range s.Pod.Status() {
		err := sendApp(c, app)
		if errors.Is(err, unix.ESRCH) {
			err = sendApp(c, s.again(app))
		}
		if err != nil {
			return err
		}
	}
	return sendReply(c, reply{Kind: kindEnd}, nil)
}

// again is the state of an app whose process was gone already. Where that has
// not come to the pod's notice yet, the app is left without a PID.
func (s *Server) again(gone supervisor.AppStatus) supervisor.AppStatus {
	for _, app := range s.Pod.Status() {
		if app.Name == gone.Name && app.PID != gone.PID {
			return app
		}
	}
	gone.PID = 0
	return gone
}

// sendApp sends one app's state. The error wraps ESRCH when its process has gone.
func sendApp(c conn, app supervisor.AppStatus) error {
	r := reply{Kind: kindApp, App: app.Name}
	if app.PID > 0 {
		r.Running = true
		return sendReply(c, r, nil, credentials(app.PID)...)
	}
	if app.Exit != nil {
		r.Exited, r.Code, r.Reason = true, app.Exit.Code, app.Exit.Reason
	} else {
		r.Ending = app.State == supervisor.StateEnding
	}
	return sendReply(c, r, nil)
}

// credentials names a process, which takes CAP_SYS_ADMIN (unix(7)).
func credentials(pid int) []byte {
	return unix.UnixCredentials(&unix.Ucred{Pid: int32(pid), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())})
}

func (s *Server) isolators(c conn, req request) error {
	fates, ok := s.Isolators(req.App)
	if !ok {
		return sendError(c, exitStatus, fmt.Errorf("app %q: %w", req.App, supervisor.ErrNoApp))
	}
	text, err := json.MarshalIndent(fates, "", "\t")
	if err != nil {
		return sendError(c, exitStatus, fmt.Errorf("encode isolators of app %q: %w", req.App, err))
	}
	document, err := sealed("isolators", append(text, '\n'))
	if err != nil {
		return sendError(c, exitStatus, err)
	}
	defer document.Close()
	return sendReply(c, reply{Kind: kindDocument}, []*os.File{document})
}

// unlimited lets a call last from now on.
func unlimited(c conn) error {
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift limit of request: %w", err)
	}
	return nil
}
