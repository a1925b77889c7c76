package unionfs

import (
	"fmt"
	"strings"
)

// Choice is the result of Select.
type Choice struct {
	Driver Driver

	// Rejected has the reason for each driver that Select tried before and rejected, with
	// semicolons between them; nil if the first one works.
	Rejected error

	// Notes are the limitations of roots here with Driver, one sentence each; see Driver.Probe.
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

// Select returns the driver with that name, or for the empty name the first driver that
// succeeds in Probe. scratch is an existing directory that will contain the roots' scratch directories. layers
// are the absolute paths of the known layers of the roots.
//
// The error for an unknown name has the name and the known names. If the named driver does not work
// here, or no driver works, the error has the reason for each driver that Select tried.
func Select(drivers []Driver, name, scratch string, layers []string) (Choice, error) {
	var choice Choice
	var rejected error
	for _, d := range drivers {
		if name != "" && d.Name() != name {
			continue
		}
		notes, err := d.Probe(scratch, layers)
		if err == nil {
			choice.Driver, choice.Notes, choice.Rejected = d, notes, rejected
			return choice, nil
		}
		if rejected != nil {
			err = fmt.Errorf("%w; %w", rejected, err) // errors.Join would use lines
		}
		rejected = err
	}
	if name != "" && rejected == nil {
		return choice, fmt.Errorf("select file system %q: choose one of %s", name, strings.Join(NamesOf(drivers), ", "))
	}
	return choice, fmt.Errorf("select file system %q: %w", name, rejected)
}
