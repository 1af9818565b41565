"""A broker's part in its cluster: it applies the controller's requests and sends its own to the controller.

May know partitions, metadata, peers and this broker's controller. Begin with `control_plane` for requests from the
controller, and with `controller_link` for requests to it.
"""
