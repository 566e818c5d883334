// Shows notifications where a page may not do it itself (phones), and brings the page back when one is tapped.
self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil((async () => {
    const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
    const page = pages.find((client) => client.url.includes(event.notification.data)) ?? pages[0];
    if (page) return page.focus();
    return self.clients.openWindow(`/#/s/${event.notification.data}`);
  })());
});
