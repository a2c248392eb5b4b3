// Command pause holds the namespaces of a pod until it is told to end.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	events := make(chan os.Signal, 16)
	signal.Notify(events, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for event := range events {
		if event != syscall.SIGCHLD {
			return
		}
		// Processes that lost their parent belong to the first process of the pod.
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
