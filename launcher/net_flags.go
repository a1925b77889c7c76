package main

import (
	"errors"

	"kurma.io/stager/launcher/networks"

	"github.com/spf13/pflag"
)

// netFlags collects --net.
type netFlags struct {
	host, none bool
	requests   []networks.Request
}

// declare declares the flag.
func (f *netFlags) declare(flags *pflag.FlagSet) {
	flags.Var(f, "net", "connect to a network of the configuration, `NETWORK[:OPTIONS]`; \"host\" for the host's network, \"none\" for only a loopback device")
}

// String implements pflag.Value.
func (f *netFlags) String() string { return "" }

// Type implements pflag.Value.
func (f *netFlags) Type() string { return "NETWORK" }

// Set implements pflag.Value.
func (f *netFlags) Set(text string) error {
	if f.host || f.none || len(f.requests) > 0 && (text == networks.HostName || text == networks.NoneName) {
		return errors.New("\"host\" and \"none\" stand alone")
	}
	switch text {
	case "":
		return errors.New("want a network")
	case networks.HostName:
		f.host = true
	case networks.NoneName:
		f.none = true
	default:
		r, err := networks.ParseRequest(text)
		if err != nil {
			return err
		}
		f.requests = append(f.requests, r)
	}
	return nil
}

// check reports a network that the configuration does not have as an error of the command's line.
func (f *netFlags) check(command string, all []networks.Network) error {
	for _, r := range f.requests {
		if _, err := networks.Find(all, r.Name); err != nil {
			return usageError{command + ": " + err.Error() + "; --net host and --net none are always there"}
		}
	}
	return nil
}
