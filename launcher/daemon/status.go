package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"kurma.io/stager/launcher/pods"
	"kurma.io/stager/names"
)

// Status is the states of a pod's apps.
type Status struct {
	Apps     map[string]pods.AppStatus // by their names
	Document json.RawMessage           // as the stager writes it
}

// CallInError says that a call-in of the stager has ended with another exit status than 0.
type CallInError struct {
	Code  int
	Words string // the call-in's stderr, "" if the caller had it
}

func (e *CallInError) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// endingTime is how long a stager that no longer answers may take to end.
const endingTime = 2 * time.Second

// Status returns what the stager of a live pod answers, or the last states of the
// apps of a pod that has ended. If the pod ends meanwhile it waits for that: a pod is
// alive or has ended, and nothing else. The pod has its last state then.
func (d *Daemon) Status(ctx context.Context, pod *pods.Pod) (Status, error) {
	if pod.State.Phase != pods.Exited {
		data, err := ask(ctx, pod, "status")
		if err == nil {
			return readStatus(pod, data)
		}
		if pod.State.Phase == pods.Dead || !pod.Ends(ctx, endingTime) {
			return Status{}, err
		}
		if err := pod.AwaitEnd(ctx); err != nil {
			return Status{}, err
		}
	}
	// In the pod's order, as the stager has it.
	last, _ := pod.LastStatus() // an app without its state has no code
	var text bytes.Buffer
	for i, name := range AppNames(pod) {
		state, err := json.Marshal(last[name])
		if err != nil {
			return Status{}, err
		}
		fmt.Fprintf(&text, "%c%q:%s", "{,"[min(i, 1)], name, state)
	}
	text.WriteByte('}')
	return Status{Apps: last, Document: text.Bytes()}, nil
}

func readStatus(pod *pods.Pod, document []byte) (Status, error) {
	s := Status{Document: document}
	if err := json.Unmarshal(document, &s.Apps); err != nil {
		return s, fmt.Errorf("read status of pod %q: %w", pod.Plan.Name, err)
	}
	return s, nil
}

// Isolators returns the stager's document that says of each isolator of an app whether it is enforced, changed or
// ignored.
func (d *Daemon) Isolators(ctx context.Context, pod *pods.Pod, app string) (json.RawMessage, error) {
	return ask(ctx, pod, "status", "--isolators", app)
}

// RestartApp ends the run of an app of a live pod, and starts the app again at once, also one that has ended. It
// returns when the app runs; an error of the stager says why it does not. Restart policy and back-off go on from there.
// When ctx ends the app is still restarted.
func (d *Daemon) RestartApp(ctx context.Context, pod *pods.Pod, app string) error {
	if app == "" {
		return fmt.Errorf("no app after %s/; want %s", pod.Plan.Name, strings.Join(AppNames(pod), ", "))
	}
	if _, err := FindApp(pod, app); err != nil {
		return err
	}
	_, err := ask(ctx, pod, names.Restart, app)
	if failed := (*CallInError)(nil); errors.As(err, &failed) {
		return errors.New(strings.TrimPrefix(strings.TrimSpace(failed.Words), names.Restart+": "))
	}
	return err
}

// ask runs a call-in and returns what it wrote to its stdout.
func ask(ctx context.Context, pod *pods.Pod, name string, args ...string) ([]byte, error) {
	var out, words bytes.Buffer
	code, err := callInto(ctx, pod, &out, &words, name, args...)
	switch {
	case err != nil || code == 0:
	case words.Len() == 0: // it was killed
		err = fmt.Errorf("call %s of pod %q: exit status %d", name, pod.Plan.Name, code)
	default:
		err = &CallInError{code, words.String()}
	}
	return out.Bytes(), err
}

// callInto runs a call-in, passes its output to writers, and returns its exit status.
func callInto(ctx context.Context, pod *pods.Pod, stdout, stderr io.Writer, name string, args ...string) (int, error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	stdio := [3]*os.File{null}
	written := [2]io.Writer{stdout, stderr}
	var outputs [len(written)]*os.File
	copied := make(chan error, len(written))
	for i, to := range written {
		read, write, err := os.Pipe()
		if err != nil {
			return 0, err
		}
		defer write.Close()
		stdio[i+1], outputs[i] = write, read
		go func() {
			_, err := io.Copy(to, read)
			_ = read.Close() // a call-in whose output cannot be written ends with its next write
			copied <- err
		}()
	}
	code, err := pod.Execute(ctx, pods.Call{Name: name, Args: args, Stdio: stdio})
	failed := err != nil
	for i := range written {
		_ = stdio[i+1].Close()
		if failed {
			_ = outputs[i].Close() // one that does not end although it was killed has the other end
		}
	}
	for range written {
		if copyErr := <-copied; !failed {
			err = errors.Join(err, copyErr)
		}
	}
	return code, err
}
