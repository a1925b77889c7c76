package unionfs

import (
	"fmt"
	"strings"
)

// Choice is the driver that Select took.
type Choice struct {
	Driver Driver

	// Rejected says, for each driver that was tried before, why it was not taken.
	Rejected []error

	// Notes says what roots lack here with Driver, one sentence each; see Driver.Probe.
	Notes []string
}

// Drivers returns the drivers of this package, in the order of the automatic choice. A new
// driver is a row here; a fork in another module adds its own to the list.
func Drivers() []Driver {
	return []Driver{Overlay{}, AUFS{}, Copy{}}
}

// NamesOf returns the drivers' names, in their order.
func NamesOf(drivers []Driver) []string {
	var names []string
	for _, d := range drivers {
		names = append(names, d.Name())
	}
	return names
}

// Select returns the one of drivers that is called name, or, for the empty name, the
// first whose Probe succeeds. scratch is an existing directory
// below which roots' scratch directories will lie, layers are the absolute paths of
// layers that roots will be made of, as many as are known.
//
// The error for an unknown name has the name and the known ones. The error for a
// named driver that does not work here, or where no driver works, says why each driver
// that was tried does not.
func Select(drivers []Driver, name, scratch string, layers []string) (Choice, error) {
	var choice Choice
	for _, d := range drivers {
		if name != "" && d.Name() != name {
			continue
		}
		notes, err := d.Probe(scratch, layers)
		if err == nil {
			choice.Driver, choice.Notes = d, notes
			return choice, nil
		}
		choice.Rejected = append(choice.Rejected, err)
	}
	if name != "" && len(choice.Rejected) == 0 {
		return choice, fmt.Errorf("select file system %q: choose one of %s", name, strings.Join(NamesOf(drivers), ", "))
	}
	return choice, fmt.Errorf("select file system %q: %w", name, joinErrors(choice.Rejected))
}

// joinErrors joins errors with semicolons; errors.Join would use lines.
func joinErrors(errs []error) error {
	joined := errs[0]
	for _, err := range errs[1:] {
		joined = fmt.Errorf("%w; %w", joined, err)
	}
	return joined
}
