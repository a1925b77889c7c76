// Command kurma-cri is a container runtime for Kubernetes: a server of the Container Runtime Interface (CRI) whose
// containers are pods of one app, each under its own stager.
//
//	kurma-cri [--config FILE]             serves until SIGTERM or SIGINT; the containers run on
//	kurma-cri [--config FILE] status      prints whether the server is ready to run pods
//	kurma-cri [--config FILE] remove-all  removes all pods of the node; the server must not run
//	kurma-cri --version                   prints the version
//	kurma-cri monitor FOLDER              watches the pod of a network plugin; the server starts it
//	kurma-cri start WORD...               becomes a container's stager; the server starts it
//	kurma-cri hold-pids                   is process 1 of a sandbox's PID namespace; the server starts it
//	kurma-cri hold                        is the main process of a network plugin's container
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"kurma.io/stager/cri/sandboxes"
	"kurma.io/stager/cri/server"
	"kurma.io/stager/internal/version"
	"kurma.io/stager/launcher/pods"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "kurma-cri: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 1 && args[0] == sandboxes.HoldPIDsCommand {
		return sandboxes.Hold(os.Stdin, os.Stdout)
	}
	if len(args) > 1 && args[0] == server.StartCommand {
		return pods.Exec(args[1:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(args) == 1 && args[0] == server.HoldCommand {
		<-ctx.Done()
		return nil
	}
	if len(args) == 2 && args[0] == server.MonitorCommand {
		return server.Monitor(ctx, args[1])
	}
	flags := flag.NewFlagSet("kurma-cri", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: kurma-cri [--config FILE] [status|remove-all]")
		flags.PrintDefaults()
	}
	file := flags.String("config", "", "configuration `FILE`; "+defaultConfigFile+" if it exists")
	printVersion := flags.Bool("version", false, "print the version")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case flags.NArg() > 1:
		return fmt.Errorf("unknown argument %q", flags.Arg(1))
	case *printVersion:
		_, err := fmt.Fprintln(os.Stdout, "kurma-cri", version.String())
		return err
	}
	config, err := readConfig(*file)
	if err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "":
		return server.Run(ctx, config, version.String())
	case "status":
		return showStatus(ctx, config.Socket, os.Stdout)
	case "remove-all":
		return server.RemoveAll(ctx, config, version.String())
	default:
		return fmt.Errorf("unknown command %q; known commands: status, remove-all", flags.Arg(0))
	}
}
