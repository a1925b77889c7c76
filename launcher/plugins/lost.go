package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/pods"
)

// errLost says that a container has ended during its start or a call, or that its main process has: the stager then
// kills the call, and accepts no other.
var errLost = errors.New("the plugin's container has ended")

// statusPatience is how long a stager may take to say whether the plugin's main process runs. It is longer than a
// busy machine needs.
const statusPatience = 10 * time.Second

// isUp asks the stager whether the container's main process runs: the stager outlives it. A stager that does not
// answer has lost it. The error is that of a ctx that has ended.
func (c *container) isUp(ctx context.Context) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	p, err := newPipes("", cancel)
	if err != nil {
		return false, err
	}
	code, err := c.pod.Execute(limited, pods.Call{Name: "status", Stdio: p.stdio})
	answer, _ := p.finish(afterEnd)
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	return err == nil && code == 0 && runs(answer), nil
}

// runs reports whether a container's main process runs, by the answer of the stager's call-in status.
func runs(answer []byte) bool {
	var status map[string]struct{ Exited, Ending bool }
	if json.Unmarshal(answer, &status) != nil {
		return false
	}
	state, known := status[app]
	return known && !state.Exited && !state.Ending
}

// orLost returns the error of a call, and marks it with errLost if the container has ended meanwhile.
func (c *container) orLost(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if up, asked := c.isUp(ctx); up || asked != nil {
		return err
	}
	return fmt.Errorf("%w: %w", errLost, err)
}

// again calls f, and once more if the container has ended meanwhile: f then starts another one.
func again(f func() error) error {
	err := f()
	if errors.Is(err, errLost) {
		err = f()
	}
	return err
}

// restore starts the container of a network again if a pod uses the network and the container has ended: what `setup`
// starts, such as a DHCP client, must run as long as the pod does.
func (c *Containers) restore(ctx context.Context, name string, used func(network string) (bool, error)) error {
	if r, err := c.readRecord(name); err != nil || !networks.IsName(name) || !isSetUp(r) {
		return nil // never set up
	}
	if is, err := used(name); !is || err != nil {
		return err
	}
	_, release, err := c.useAny(ctx, name)
	if err != nil {
		return fmt.Errorf("start plugin of network %q again: %w", name, err)
	}
	release()
	return nil
}
