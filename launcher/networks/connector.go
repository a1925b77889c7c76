package networks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"kurma.io/stager/launcher/jsonfile"
)

// CallTime is how long a plugin may take for a call (Kurma Network Specification).
const CallTime = time.Minute

// Plugin is a network's plugin. Its methods may run concurrently, for
// several pods. Each returns soon after ctx ends, and has ended the plugin's processes then. An
// error has the plugin's words.
type Plugin interface {
	// Start starts the plugin, and sets it up with the network's configuration, unless it runs so. It may be called at
	// any time.
	Start(ctx context.Context) error
	// Add connects a pod and returns the plugin's output, a result of the Kurma Network Specification or of CNI.
	Add(ctx context.Context, call Call) ([]byte, error)
	// Del undoes Add, also when the network is no longer in the configuration. An Add that failed, or was killed, or
	// never ran is not an error.
	Del(ctx context.Context, call Call) error
}

// Call is what a plugin gets for a pod.
type Call struct {
	Config    string   // stdin
	Namespace string   // path of the pod's network namespace
	UUID      string   // the pod's
	Interface string   // "" if the network has none
	Env       []string // NAME=value
}

// Record is what has become of a pod's attachments. It is on disk before each `add`, so that a
// crash is undone by `del` of the first Begun attachments in reverse.
type Record struct {
	Begun   int      `json:"begun"`
	Results []Result `json:"results"` // of the first attachments, in their order
}

// Connector connects pods to networks by the networks' plugins.
type Connector struct {
	// Plugin returns the plugin of a network. It may be called concurrently.
	Plugin func(network string) Plugin
	// CallTime limits each call; 0 for the constant CallTime.
	CallTime time.Duration
}

// Connect calls `add` of each attachment's plugin in order. file is where the record is kept. A port that a network
// publishes on an address of a family that the pod does not have there is an error.
// After an error every `add` that has begun has been undone by `del`, the last first, and the
// record is gone if that worked; the error names the network and has the plugin's words.
func (c *Connector) Connect(ctx context.Context, file, uuid, namespace string,
	attachments []Attachment,
) ([]Result, error) {
	var record Record
	for _, a := range attachments {
		result, err := c.add(ctx, file, &record, call(a, uuid, namespace), a.Network)
		record.Results = append(record.Results, result)
		if err == nil {
			err = a.checkPorts(result)
		}
		if err != nil {
			err = fmt.Errorf("connect to network %q: %w", a.Network, err)
			return nil, errors.Join(err, c.Disconnect(context.WithoutCancel(ctx), file, uuid, namespace, attachments))
		}
	}
	if err := jsonfile.Write(file, record); err != nil {
		err = fmt.Errorf("connect to networks: %w", err)
		return nil, errors.Join(err, c.Disconnect(context.WithoutCancel(ctx), file, uuid, namespace, attachments))
	}
	return record.Results, nil
}

// add records that the `add` begins, and calls it. Of a plugin that cannot be started there is
// nothing to undo.
func (c *Connector) add(ctx context.Context, file string, record *Record, call Call, network string) (Result, error) {
	plugin := c.Plugin(network)
	if err := plugin.Start(ctx); err != nil {
		return Result{}, err
	}
	record.Begun++
	if err := jsonfile.Write(file, *record); err != nil {
		return Result{}, err
	}
	ctx, cancel := LimitCall(ctx, c.CallTime)
	defer cancel()
	output, err := plugin.Add(ctx, call)
	if err != nil {
		return Result{}, err
	}
	return parseResult(output)
}

// Disconnect calls `del` for every attachment after the begin of its `add`, the last first, and
// removes the record when all have worked. It attempts each, and returns their errors. Without
// a record there is nothing to do. A call may be repeated.
func (c *Connector) Disconnect(ctx context.Context, file, uuid, namespace string, attachments []Attachment) error {
	record, err := ReadRecord(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		record.Begun = len(attachments) // a power loss has damaged it: undo all
	}
	var errs []error
	for i := min(record.Begun, len(attachments)) - 1; i >= 0; i-- {
		if err := c.del(ctx, uuid, namespace, attachments[i]); err != nil {
			errs = append(errs, fmt.Errorf("disconnect from network %q: %w", attachments[i].Network, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return os.Remove(file)
}

func (c *Connector) del(ctx context.Context, uuid, namespace string, a Attachment) error {
	ctx, cancel := LimitCall(ctx, c.CallTime)
	defer cancel()
	return c.Plugin(a.Network).Del(ctx, call(a, uuid, namespace))
}

// LimitCall returns a context for one call of a plugin, which ends after limit, 0 for the constant CallTime, and with
// ctx. The cause of its end names the limit. The caller cancels it after the call.
func LimitCall(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	limit = cmp.Or(limit, CallTime)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
}

// argsVariable is a variable of CNI's plugins (Container Network Interface Proposal).
const argsVariable = "CNI_ARGS"

func call(a Attachment, uuid, namespace string) Call {
	c := Call{Config: a.Config, Namespace: namespace, UUID: uuid, Interface: a.Interface}
	if a.Args != "" {
		c.Env = []string{argsVariable + "=" + a.Args}
	}
	return c
}

// ReadRecord reads the record of a pod; it is fs.ErrNotExist for a pod that is connected to no
// network.
func ReadRecord(file string) (Record, error) {
	var record Record
	if err := jsonfile.Read(file, &record); err != nil {
		return Record{}, fmt.Errorf("read networks of pod: %w", err)
	}
	return record, nil
}
