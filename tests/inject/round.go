package inject

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kurma.io/stager/tests/poll"
)

// verdict is how a point has ended.
type verdict string

const (
	clean     verdict = "clean"
	left      verdict = "left"      // the world differs from the world after a clean round
	hung      verdict = "hung"      // a step took longer than the limit
	wrong     verdict = "wrong"     // a step's exit code does not tell what it did, see judge
	unreached verdict = "unreached" // the role did not make the call so often, in three rounds
)

// outcome is a verdict with its reason.
type outcome struct {
	verdict verdict
	detail  string
}

// settled is how long no call may be counted for an operation to be over: a monitor goes on after the command.
const settled = 40 * time.Millisecond

// act does the operation, counting. The fault is injected at a point, nil for none; hit describes its call.
func (w *world) act(op operation, p *point) (r result, counts map[place]int, hit string) {
	w.injector.begin(p)
	r = w.injected(op.act...)
	total, since := w.injector.total(), time.Now()
	poll.Until(2*time.Second, settled/4, func() bool {
		if now := w.injector.total(); now != total {
			total, since = now, time.Now()
		}
		return time.Since(since) >= settled
	})
	counts, hit = w.injector.end()
	fmt.Fprintf(&w.record, "fault: %s\n", hit)
	return r, counts, hit
}

// prepare makes the world ready for the operation.
func (w *world) prepare(op operation) error {
	for _, args := range op.before {
		if r := w.injected(args...); r.code != 0 {
			return fmt.Errorf("%s: exit status %d: %s", strings.Join(args, " "), r.code, r.stderr)
		}
	}
	return nil
}

// judge does what a person does after an operation that a fault has hit, and returns why it is wrong, nil for nothing:
//
//   - the operation reports 0 and its effect is missing, or it reports another code without a word, or it crashes; a
//     child that is killed is like an app that is killed right after its start;
//   - what it must keep is lost, unless a warning says so;
//   - ps or gc reports another code than 0, or crashes;
//   - the operation, done again without a fault where the world is ready for it, else from the start, reports another
//     code than 0, or its effect is missing.
//
// Without a point nothing is done again.
func (w *world) judge(op operation, r result, p *point) error {
	appKilled := p != nil && p.fault == killFault && p.role == child
	silent := p != nil && p.fault == killFault && (p.role == command || op.passes) && r.code == 128+int(unix.SIGKILL)
	switch done := op.done(w, r); {
	case w.hung != "":
		return nil
	case r.code == 0 && !done && !appKilled:
		return errors.New("the operation reports 0, its effect is missing")
	case r.code != 0 && !silent && strings.TrimSpace(r.stderr) == "":
		return fmt.Errorf("the operation reports %d without a word", r.code)
	case crashed(r) && (p == nil || p.role != plugin): // the error of a plugin may have what the Go runtime says of it
		return errors.New("the operation crashes")
	}
	if op.kept != nil && !appKilled && !strings.Contains(r.stderr, "output is lost") {
		if lost := op.kept(w); lost != "" {
			return errors.New("lost: " + lost)
		}
	}
	looks := [][]string{{"ps", "--all"}, {"gc"}}
	if op.cri() {
		looks = [][]string{{criWord, "ListPodSandbox", "{}"}, {criWord, "ListContainers", "{}"}, {criWord, "ListImages", "{}"}}
	}
	for _, args := range looks {
		if again := w.launcher(args...); again.code != 0 || crashed(again) {
			return fmt.Errorf("%s reports %d: %s", strings.Join(args, " "), again.code, again.stderr)
		}
	}
	if p == nil {
		return nil
	}
	return w.again(op)
}

// again does the operation without a fault. The pod may be ending because of the fault, unseen: once the world is not
// ready any more, the operation begins from the start.
func (w *world) again(op operation) error {
	for fresh := false; ; fresh = true {
		if op.ready != nil && !op.ready(w) {
			if err := w.clear(op); err != nil {
				return err
			}
			if err := w.prepare(op); err != nil {
				return fmt.Errorf("prepare again: %w", err)
			}
			fresh = true
		}
		r := w.launcher(op.act...)
		switch {
		case r.code == 0 && op.done(w, r):
			return nil
		case fresh || op.ready == nil || op.ready(w):
			return fmt.Errorf("the operation, again, reports %d: %s", r.code, r.stderr)
		}
	}
}

// crashed reports whether the Go runtime has ended the program. At the limit a signal has it do so.
func crashed(r result) bool { return strings.Contains(r.stderr, "goroutine ") }

// clear removes all pods, and what else the operation has made.
func (w *world) clear(op operation) error {
	if op.cri() {
		return errors.Join(w.clearServer(), w.afterwards(op))
	}
	for _, args := range [][]string{{"rm", "--all", "--force"}, {"gc"}} {
		if r := w.launcher(args...); r.code != 0 || crashed(r) {
			return fmt.Errorf("%s reports %d: %s", strings.Join(args, " "), r.code, r.stderr)
		}
	}
	return w.afterwards(op)
}

func (w *world) afterwards(op operation) error {
	if op.after != nil {
		op.after(w)
	}
	return nil
}

// cleanRound does the operation without a fault, and returns how often each role has made each call.
func (w *world) cleanRound(op operation) (map[place]int, error) {
	w.record.Reset()
	if err := w.prepare(op); err != nil {
		return nil, err
	}
	r, counts, _ := w.act(op, nil)
	err := w.judge(op, r, nil)
	if r.code != 0 {
		err = errors.Join(err, fmt.Errorf("exit status %d", r.code))
	}
	if w.hung != "" {
		err = errors.Join(err, errors.New("hung: "+w.hung))
	}
	return counts, errors.Join(err, w.clear(op))
}

// try injects a fault at a point, and compares what is left with the world after a clean round.
func (w *world) try(op operation, p point, before []string) outcome {
	w.record.Reset()
	if err := w.prepare(op); err != nil {
		return outcome{wrong, "prepare: " + err.Error()}
	}
	r, _, hit := w.act(op, &p)
	if hit == "" {
		if err := w.clear(op); err != nil {
			return outcome{wrong, err.Error()}
		}
		return outcome{verdict: unreached}
	}
	err := w.judge(op, r, &p)
	if err == nil && w.hung == "" {
		err = w.clear(op)
	}
	switch {
	case w.hung != "":
		return outcome{hung, w.hung}
	case err != nil:
		return outcome{wrong, err.Error()}
	}
	if changes := w.left(before); changes != nil {
		return outcome{left, strings.Join(changes, "; ")}
	}
	return outcome{verdict: clean}
}
