// Package hostile has programs that an app of a pod may run to harm the pod's supervisor, its
// neighbours or the host. A test program runs one of them as an app.
package hostile

// Programs returns the programs by name. Each runs until it is killed; an error means that it cannot
// begin.
func Programs() map[string]func() error {
	return map[string]func() error{
		"stopper": stopper,
	}
}
