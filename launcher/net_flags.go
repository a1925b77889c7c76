package main

import (
	"errors"
	"net/netip"

	"kurma.io/stager/launcher/networks"
	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/launcher/pods"

	"github.com/spf13/pflag"
)

// netFlags collects --net, --publish, --dns and --add-host.
type netFlags struct {
	host, none  bool
	requests    []networks.Request
	publish     []networks.PortMapping
	nameServers []string
	hosts       []pods.Host
}

// takeOtherNames accepts the names that podman and docker have for options. Only the launcher's own are shown and
// proposed.
func takeOtherNames(flags *pflag.FlagSet) {
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name {
		case "network":
			name = "net"
		case "entrypoint":
			name = "exec"
		}
		return pflag.NormalizedName(name)
	})
}

// declare declares the flags.
func (f *netFlags) declare(flags *pflag.FlagSet) {
	flags.FuncP("publish", "p", "publish the pod's port on the host, `[IP:]HOST:PORT[/PROTOCOL]`, such as 8080:80 or "+
		"127.0.0.1:53:53/udp, or a range, 8000-8009:80-89; PORT alone has a free port of the host, which ps shows",
		func(text string) error {
			ports, err := networks.ParsePorts(text)
			f.publish = append(f.publish, ports...)
			return err
		})
	flags.Func("net", "connect to a network of the configuration, `NETWORK[:OPTIONS]`; \"host\" for the host's "+
		"network, \"none\" for only a loopback device (also --network)", f.add)
	flags.Func("add-host", "give the apps a name in /etc/hosts, `NAME:ADDRESS`", func(text string) error {
		host, err := podplan.ParseHost(text)
		f.hosts = append(f.hosts, host)
		return err
	})
	flags.Func("dns", "ask the name server at this `ADDRESS`, not those of the networks", func(text string) error {
		if _, err := netip.ParseAddr(text); err != nil {
			return errors.New("want an address")
		}
		f.nameServers = append(f.nameServers, text)
		return nil
	})
}

// add adds a network of --net.
func (f *netFlags) add(text string) error {
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

// check reports a network that the configuration does not have, or that publishes no port, as an error of the
// command's line.
func (f *netFlags) check(command string, all []networks.Network) error {
	switch {
	case f.host && len(f.nameServers) > 0:
		return usageError{command + ": --dns contradicts --net host, with which apps have the host's name servers"}
	case f.none && len(f.nameServers) > 0:
		return usageError{command + ": --dns contradicts --net none, with which a pod has only a loopback device"}
	case f.host && len(f.publish) > 0:
		return usageError{command + ": --publish contradicts --net host, with which apps listen on the host's own ports"}
	case f.none && len(f.publish) > 0:
		return usageError{command + ": --publish contradicts --net none, with which a pod has only a loopback device"}
	}
	for _, r := range f.requests {
		if _, err := networks.Find(all, r.Name); err != nil {
			return usageError{command + ": " + err.Error() + "; --net host and --net none always work"}
		}
	}
	return nil
}
