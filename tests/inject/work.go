package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// errDirty says that the world is of no more use, and dirtyCode is the worker's exit code then.
var errDirty = errors.New("the world is not as it was")

const dirtyCode = 75

// options are what a worker does.
type options struct {
	Built   built
	Cgroup  string
	Results string        // the file
	Point   string        // a selection
	Every   int           // of each Every points of a role one is taken, not at the same place of each
	Workers int           // how many there are
	Worker  int           // this one's number, from 0: it takes every Workers-th operation
	Until   time.Time     // no point begins later
	Limit   time.Duration // of a step
}

// tries is how often a point is tried that is not reached.
const tries = 3

// work is the main function of a worker: its arguments are the world's folder and options as JSON. It returns nil when
// all points have an outcome, or the time is over.
func work(args []string) error {
	var o options
	if err := json.Unmarshal([]byte(args[1]), &o); err != nil {
		return err
	}
	w := &world{built: o.Built, dir: args[0], cgroup: o.Cgroup, limit: o.Limit, injector: newInjector()}
	if err := w.setUp(); err != nil {
		return err
	}
	wanted, err := parseSelection(o.Point)
	if err != nil {
		return err
	}
	number := 0
	for _, op := range operations(o.Built) {
		if !wanted.matches(op.name) {
			continue
		}
		if number++; number%o.Workers != o.Worker {
			continue // another worker's
		}
		if err := o.workOn(w, op, wanted); err != nil {
			return err
		}
	}
	return nil
}

// workOn tries the points of an operation that have no outcome yet.
func (o options) workOn(w *world, op operation, wanted selection) error {
	all, err := readResults(o.Results)
	if err != nil {
		return err
	}
	var points []point
	if all.counts[op.name] != nil {
		if points = o.chosen(all, op, wanted); len(points) == 0 {
			return nil
		}
	} else if !time.Now().Before(o.Until) {
		return nil
	}
	if err := w.setUpFor(op); err != nil {
		return fmt.Errorf("set up for %s: %w", op.name, err)
	}
	counts, err := w.cleanRound(op)
	if err != nil {
		return fmt.Errorf("%s without a fault: %w\n%s", op.name, err, w.record.String())
	}
	before := w.things()
	if all.counts[op.name] == nil {
		if err := o.count(w, op, counts); err != nil {
			return err
		}
		if all, err = readResults(o.Results); err != nil {
			return err
		}
		points = o.chosen(all, op, wanted)
	}
	for _, p := range points {
		if !time.Now().Before(o.Until) {
			return nil
		}
		if err := o.tryPoint(w, op, p, before); err != nil {
			return err
		}
	}
	return nil
}

// count records how often each role makes each call in each of two rounds.
func (o options) count(w *world, op operation, counts map[place]int) error {
	other, err := w.cleanRound(op)
	if err != nil {
		return fmt.Errorf("%s without a fault, again: %w", op.name, err)
	}
	for at := range maps.Keys(counts) {
		if n := min(counts[at], other[at]); n > 0 {
			if err := appendLine(o.Results, "count", op.name, string(at.role), at.call, fmt.Sprint(n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// chosen returns the points of an operation that are to be tried: of each role's points in the selection one of each
// Every, and at least one.
func (o options) chosen(all results, op operation, wanted selection) []point {
	byRole := map[role][]point{}
	for _, p := range all.points(op.name) {
		if wanted.matches(p.String()) {
			byRole[p.role] = append(byRole[p.role], p)
		}
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(op.name)) // it returns no error
	begin := int(hash.Sum32() % (1 << 16))
	var chosen []point
	for _, r := range slices.Sorted(maps.Keys(byRole)) {
		points := byRole[r]
		for i, p := range points {
			// The next Every points have it at another place: the faults of a call are neighbours.
			if i%o.Every != (begin+i/o.Every)%o.Every && i != begin%len(points) {
				continue
			}
			if _, known := all.outcomes[p]; !known {
				chosen = append(chosen, p)
			}
		}
	}
	return chosen
}

// tryPoint tries a point until it is reached, and records its outcome. It returns errDirty if the world is of no more
// use.
func (o options) tryPoint(w *world, op operation, p point, before []string) error {
	var out outcome
	for range tries {
		if out = w.try(op, p, before); out.verdict != unreached {
			break
		}
	}
	if err := appendLine(o.Results, "point", p.String(), string(out.verdict), shortened(out.detail)); err != nil {
		return err
	}
	if out.verdict == clean || out.verdict == unreached {
		return nil
	}
	dir := o.Results + ".d"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text := fmt.Sprintf("%s: %s: %s\n\n%s", p, out.verdict, out.detail, w.record.String())
	if err := os.WriteFile(filepath.Join(dir, strings.ReplaceAll(p.String(), "/", "_")), []byte(text), 0o644); err != nil {
		return err
	}
	return errDirty
}

func shortened(text string) string {
	if len(text) > 400 {
		return text[:400] + "…"
	}
	return text
}
